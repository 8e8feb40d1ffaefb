// Package listen serves HTTP for rollout's processes: it checks the address that
// they listen at, authenticates requests, and bounds requests and answers.
//
// Without a token a process answers only requests from its own machine; with one,
// only requests that carry it. At addresses that other machines can reach it speaks
// TLS. The package knows no endpoint.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// TokenSecret names the secret that holds the bearer token.
const TokenSecret = "api-token"

// Check refuses, as Invalid, an address that other machines can reach, unless
// requests need a token. Example: "127.0.0.1:8080".
func Check(addr string, token bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.128q is not an address to listen on", addr),
			Remedy: "use host:port, such as 127.0.0.1:8080"}
	}
	if token || loopback(host) {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s can be reached from other machines", addr),
		Remedy: "listen on 127.0.0.1, or set the secret " + TokenSecret}
}

// Open reads the secret TokenSecret, checks the address (see Check) and listens
// there, with TLS where t says so. The returned token is empty if the secret is not set.
func Open(ctx context.Context, addr string, secrets secret.Store, t TLS) (net.Listener, secret.Value, error) {
	token, err := secrets.Get(ctx, TokenSecret)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, token, err
	}
	if err := Check(addr, err == nil); err != nil {
		return nil, token, err
	}
	settings, err := t.settings(addr)
	if err != nil {
		return nil, token, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, token, fault.WithKind(fault.Unavailable, err, "listen")
	}
	if settings != nil {
		l = secured{tls.NewListener(l, settings)}
	}
	return l, token, nil
}

// Bounds of requests and answers. Zero means unbounded, except for
// ShutdownTimeout.
type Bounds struct {
	MaxBodyBytes    int64         // bytes of a request
	ReadTimeout     time.Duration // from its first byte to its last
	HandlerTimeout  time.Duration // of the handler
	WriteTimeout    time.Duration // from its header to the answer's last byte
	ShutdownTimeout time.Duration // for requests in progress when the server ends
}

// DefaultBounds returns the bounds of an API that answers at once.
func DefaultBounds() Bounds {
	return Bounds{
		MaxBodyBytes:    64 << 10,
		ReadTimeout:     10 * time.Second,
		HandlerTimeout:  15 * time.Second,
		WriteTimeout:    30 * time.Second,
		ShutdownTimeout: 3 * time.Second,
	}
}

// Bounds of every server.
const (
	maxHeader  = 16 << 10
	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
)

// Serve answers within DefaultBounds; see Bounds.Serve.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return DefaultBounds().Serve(ctx, l, h)
}

// Serve answers at the listener until ctx ends. Requests in progress then have
// ShutdownTimeout to end. The caller checks the address first; see Check.
func (b Bounds) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       b.ReadTimeout,
		WriteTimeout:      b.WriteTimeout,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.ShutdownTimeout)
		defer cancel()
		closed <- server.Shutdown(last)
	})
	err := server.Serve(l)
	if stop() { // Serve failed before ctx ended
		return fault.WithKind(fault.Unavailable, err, "serve HTTP at %s", l.Addr())
	}
	if err := <-closed; err != nil {
		return fault.WithKind(fault.Unavailable, errors.Join(err, server.Close()), "close HTTP at %s", l.Addr())
	}
	return nil
}
