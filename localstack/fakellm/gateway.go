package fakellm

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// gateway is a proxy in front of the server that answers 504 if nothing has come for its
// timeout, and lets the request go.
type gateway struct {
	http.ResponseWriter
	request *http.Request
	cancel  context.CancelFunc
	timer   *time.Timer

	mu      sync.Mutex
	begun   bool // the server's answer
	timeout bool
}

func newGateway(w http.ResponseWriter, r *http.Request, after time.Duration) *gateway {
	ctx, cancel := context.WithCancel(r.Context())
	g := &gateway{ResponseWriter: w, request: r.WithContext(ctx), cancel: cancel}
	g.timer = time.AfterFunc(after, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.timeout = !g.begun
		if g.timeout {
			cancel()
		}
	})
	return g
}

// begin begins the server's answer and reports whether the client still waits for it.
func (g *gateway) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = !g.timeout
	return g.begun
}

// WriteHeader implements http.ResponseWriter.
func (g *gateway) WriteHeader(status int) {
	if g.begin() {
		g.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (g *gateway) Write(b []byte) (int, error) {
	if g.begin() {
		return g.ResponseWriter.Write(b)
	}
	return len(b), nil
}

// Unwrap returns the writer for http.ResponseController.
func (g *gateway) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// end answers 504 if the timeout was met.
func (g *gateway) end() {
	g.timer.Stop()
	g.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timeout {
		writeError(g.ResponseWriter, http.StatusGatewayTimeout, "GatewayTimeout", "the upstream server timed out")
	}
}
