package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"rollout/shared/fault"
)

// TokenSecret names the secret that holds the API's bearer token.
const TokenSecret = "api-token"

// CheckListen refuses, as Invalid, an address that others than this machine
// can reach, unless the API demands a token. Example: "127.0.0.1:8080".
func CheckListen(addr string, token bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.128q is no address to listen on", addr), Remedy: "use host:port, such as 127.0.0.1:8080"}
	}
	if token || loopback(host) {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s can be reached from other machines", addr),
		Remedy: "listen on 127.0.0.1, or set the secret " + TokenSecret}
}

// loopback reports whether the host is this machine only. Other names than
// localhost are not looked up: what they mean can change.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// fromHere reports whether the request was meant for this machine: a web page
// that resolves its own name to 127.0.0.1 (DNS rebinding) names itself in
// Host, and one that just posts names itself in Origin.
func fromHere(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !loopback(strings.Trim(host, "[]")) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopback(u.Hostname())
}

// Bounds of a request.
const (
	maxHeader  = 16 << 10
	maxBody    = 64 << 10
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	answerTime = 15 * time.Second
	writeTime  = 30 * time.Second
	idleTime   = 2 * time.Minute
	lastTime   = 3 * time.Second // for requests in progress when the server ends
)

// Serve answers at the listener, which the caller opened after CheckListen,
// until ctx ends; requests in progress then may end within a few seconds.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
		defer cancel()
		closed <- server.Shutdown(last)
	})
	err := server.Serve(l)
	if stop() { // it failed by itself
		return fault.As(fault.Unavailable, err, "serve the API at %s", l.Addr())
	}
	if err := <-closed; err != nil {
		return fault.As(fault.Unavailable, errors.Join(err, server.Close()), "close the API at %s", l.Addr())
	}
	return nil
}
