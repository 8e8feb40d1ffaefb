package gcp

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"rollout/shared/clock"
)

// maxSkew is the largest difference from the services' time at which the local clock
// counts as correct. Answers carry whole seconds and arrive with a delay.
const maxSkew = 3 * time.Second

// Clock is the time of Google's services, taken from the date in the header of each
// answer over gRPC: that of documents, queues and secrets. A machine whose own clock is
// minutes ahead would otherwise see every live worker as dead. Until the first answer,
// Clock is the machine's clock. It is safe for concurrent use.
type Clock struct {
	machine clock.Clock
	ahead   atomic.Int64 // the services' time minus the machine's, in nanoseconds
}

var _ clock.Clock = (*Clock)(nil)

// NewClock returns a clock that corrects machine by the answers of the clients whose
// Config has it.
func NewClock(machine clock.Clock) *Clock { return &Clock{machine: machine} }

// Now returns the services' time; see clock.Clock.
func (c *Clock) Now() time.Time { return c.machine.Now().Add(time.Duration(c.ahead.Load())) }

// options are the client options that report the answers' headers to the clock.
func (c *Clock) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(c.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(c.stream)),
	}
}

// unary reports the answer of a call with one answer; see grpc.UnaryClientInterceptor.
func (c *Clock) unary(ctx context.Context, method string, in, out any, conn *grpc.ClientConn,
	next grpc.UnaryInvoker, o ...grpc.CallOption) error {
	var header metadata.MD
	err := next(ctx, method, in, out, conn, append(o, grpc.Header(&header))...)
	c.observe(header)
	return err
}

// stream reports the answer of a call with many answers; see
// grpc.StreamClientInterceptor.
func (c *Clock) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := next(ctx, d, conn, method, o...)
	if err != nil {
		return nil, err
	}
	return &clockedStream{ClientStream: stream, clock: c}, nil
}

// clockedStream reports the header of a stream once.
type clockedStream struct {
	grpc.ClientStream
	clock    *Clock
	observed bool
}

// RecvMsg receives the next message; see grpc.ClientStream. It is not called
// concurrently.
func (s *clockedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if !s.observed {
		if header, headerErr := s.Header(); headerErr == nil { // it has arrived
			s.clock.observe(header)
		}
		s.observed = true
	}
	return err
}

// observe sets the offset from the date of one answer, if it has one.
func (c *Clock) observe(header metadata.MD) {
	dates := header.Get("date")
	if len(dates) == 0 {
		return
	}
	at, err := http.ParseTime(dates[0])
	if err != nil {
		return
	}
	ahead := at.Sub(c.machine.Now())
	if ahead.Abs() <= maxSkew {
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
}
