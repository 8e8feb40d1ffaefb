package aws

import (
	"context"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/clock"
)

// maxSkew is the largest difference from the services' time at which the local
// clock counts as correct. Responses carry whole seconds and arrive with a delay.
const maxSkew = 3 * time.Second

// Clock is the time of the AWS services, taken from the Date header of each
// response. A machine whose own clock is minutes ahead would otherwise see every
// live worker as dead. Until the first response, Clock is the machine's clock.
// It is safe for concurrent use.
type Clock struct {
	machine clock.Clock
	ahead   atomic.Int64 // the services' time minus the machine's, in nanoseconds
}

var _ clock.Clock = (*Clock)(nil)

// NewClock returns a clock that corrects machine by the responses of the clients
// to which AddMiddleware was given.
func NewClock(machine clock.Clock) *Clock { return &Clock{machine: machine} }

// Now returns the services' time; see clock.Clock.
func (c *Clock) Now() time.Time { return c.machine.Now().Add(time.Duration(c.ahead.Load())) }

// AddMiddleware makes a client report the time of its responses to the clock.
// Pass it as one of the SDK's APIOptions.
func (c *Clock) AddMiddleware(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("rolloutClock",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
			middleware.InitializeOutput, middleware.Metadata, error,
		) {
			out, metadata, err := next.HandleInitialize(ctx, in)
			if serverTime, ok := awsmiddleware.GetServerTime(metadata); ok {
				c.adjust(serverTime)
			}
			return out, metadata, err
		}), middleware.Before)
}

// adjust sets the offset from the time of one response.
func (c *Clock) adjust(serverTime time.Time) {
	ahead := serverTime.Sub(c.machine.Now())
	if ahead.Abs() <= maxSkew {
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
}
