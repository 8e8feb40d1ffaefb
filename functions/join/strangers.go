package join

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"rollout/shared/fault"
	"rollout/shared/remote"
	"rollout/shared/remote/portsv1"
)

// A stranger is a caller without a certificate that holds. It may enroll with a token, and do
// nothing else. gRPC reads a call's message before any interceptor runs, so that strangers are
// refused before that: a connection learns at its handshake whose it is, and each call at its
// header.
//
//	handshake ─▶ fromAddr{refused} ─TagConn─▶ context ─▶ tap ─▶ message ─▶ identify ─▶ service

// Bounds of strangers.
const (
	strangerLife = 10 * time.Second // of a connection
	maxEnrolling = 8                // at once
	maxHeader    = 16 << 10         // of a call, in bytes, also of a member's
	ioBuffer     = 16 << 10         // of a connection, each way
	maxConns     = 1024             // of all callers
)

// limited returns the listener with at most maxConns connections at once, and a quarter of the
// files that the process may have open.
func limited(l net.Listener) net.Listener {
	most := maxConns
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		most = min(most, max(16, int(min(files.Cur, 1<<20)/4)))
	}
	return netutil.LimitListener(l, most)
}

// callerCredentials are TLS credentials that find out whose a connection is.
type callerCredentials struct {
	credentials.TransportCredentials
	verify func(*x509.Certificate) error
}

// ServerHandshake is credentials.TransportCredentials'. A stranger's connection ends after
// strangerLife.
func (c callerCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	refused := c.verify(certificateOf(info))
	if refused != nil {
		time.AfterFunc(strangerLife, func() { _ = raw.Close() })
	}
	return fromConn{conn, fromAddr{conn.RemoteAddr(), refused}}, info, nil
}

// Clone is credentials.TransportCredentials'.
func (c callerCredentials) Clone() credentials.TransportCredentials {
	return callerCredentials{c.TransportCredentials.Clone(), c.verify}
}

// certificateOf returns the certificate that a caller has shown; nil if it has shown none.
func certificateOf(info credentials.AuthInfo) *x509.Certificate {
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.PeerCertificates) > 0 {
		return t.State.PeerCertificates[0]
	}
	return nil
}

// fromConn is a connection whose remote address says whether it is a stranger's.
type fromConn struct {
	net.Conn
	from fromAddr
}

// RemoteAddr is net.Conn's.
func (c fromConn) RemoteAddr() net.Addr { return c.from }

// fromAddr is a caller's address, and why its certificate does not hold; nil if it does.
type fromAddr struct {
	net.Addr
	refused error
}

// strangerKey is the context key of why a connection is a stranger's.
type strangerKey struct{}

// enrollingKey is the context key of the function to call at the end of a stranger's call.
type enrollingKey struct{}

// tap decides at a call's header, before its message is read, whether a stranger may go on.
func (s *Server) tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	refused, _ := ctx.Value(strangerKey{}).(error)
	if call.FullMethodName != portsv1.Membership_Enroll_FullMethodName {
		if refused == nil {
			return ctx, nil
		}
		s.report(ctx, refused)
		return nil, remote.Unidentified(refused)
	}
	select {
	case s.enrolling <- struct{}{}:
		return context.WithValue(ctx, enrollingKey{}, func() { <-s.enrolling }), nil
	default:
		return nil, remote.StatusOf(&fault.Error{Kind: fault.Throttled,
			Err: errors.New("many workers join at once"), RetryAfter: time.Second})
	}
}

// connections is the stats.Handler that passes on what a connection learned at its handshake.
type connections struct{}

// TagConn is stats.Handler's.
func (connections) TagConn(ctx context.Context, c *stats.ConnTagInfo) context.Context {
	if from, ok := c.RemoteAddr.(fromAddr); ok && from.refused != nil {
		return context.WithValue(ctx, strangerKey{}, from.refused)
	}
	return ctx
}

// TagRPC is stats.Handler's.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleConn is stats.Handler's.
func (connections) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC is stats.Handler's.
func (connections) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ended := s.(*stats.End); !ended {
		return
	}
	if release, ok := ctx.Value(enrollingKey{}).(func()); ok {
		release()
	}
}
