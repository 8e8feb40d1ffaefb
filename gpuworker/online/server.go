package online

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/onlinewire"
)

// Target answers requests that have a slot.
type Target interface {
	// Serve writes the answer. Its context is the slot's.
	Serve(w http.ResponseWriter, r Request)
}

// Request is a request that has a slot.
type Request struct {
	HTTP *http.Request // with the slot's context
	Path string        // below /v1/. Example: "chat/completions"
	onlinewire.Request
	Slot Slot
}

// Slot is the permission to answer a request: a worker.OnlineSlot.
type Slot interface {
	// Context ends when the client leaves, and when a drain cuts the request off, which
	// CutOff reports.
	Context() context.Context
	CutOff() bool
	// Report takes in what the answer says of the server's limits.
	Report(ratelimit.Report)
	// Unused says that no server got the request.
	Unused()
}

// Server takes the online requests of a process, for the worker that it runs now. It is safe
// for concurrent use.
type Server struct {
	target  Target
	maxWait time.Duration
	bodies  *onlinewire.Bodies
	worker  atomic.Pointer[worker.Worker]
}

// New returns a server whose requests wait for a slot for maxWait at most.
func New(target Target, maxWait time.Duration) *Server {
	return &Server{target: target, maxWait: maxWait, bodies: onlinewire.NewBodies()}
}

// SetWorker says which worker runs now; nil is none.
func (s *Server) SetWorker(w *worker.Worker) { s.worker.Store(w) }

// Serve takes requests until ctx ends, which cuts off those in progress.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// The bounds of a request are those of its parts: the body's, the wait's, the answer's.
	return listen.Bounds{ShutdownTimeout: time.Millisecond}.Serve(ctx, l, s)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok || r.Method != http.MethodPost || !slices.Contains(onlinewire.Paths(), path) {
		http.NotFound(w, r)
		return
	}
	until := time.Now().Add(s.waitOf(r))
	body, release, err := s.bodies.Read(w, r, onlinewire.MaxBody, time.Until(until))
	if err != nil {
		refuse(w, onlinewire.Elsewhere, http.StatusServiceUnavailable, err)
		return
	}
	defer release()
	asked, err := onlinewire.Parse(body)
	if err != nil {
		refuse(w, onlinewire.Failed, http.StatusBadRequest, err)
		return
	}
	slot, err := s.acquire(r, asked, max(0, time.Until(until)))
	if err != nil {
		outcome := onlinewire.Elsewhere
		if fault.Is(err, fault.Throttled) {
			outcome = onlinewire.Full
		}
		refuse(w, outcome, http.StatusServiceUnavailable, err)
		return
	}
	defer slot.Release()
	w.WriteHeader(onlinewire.Begun)
	s.target.Serve(w, Request{HTTP: r.WithContext(slot.Context()), Path: path, Request: asked, Slot: slot})
}

// waitOf returns how long a request may wait.
func (s *Server) waitOf(r *http.Request) time.Duration {
	if ms, err := strconv.ParseInt(r.Header.Get(onlinewire.Wait), 10, 64); err == nil && ms >= 0 {
		return min(s.maxWait, time.Duration(ms)*time.Millisecond)
	}
	return s.maxWait
}

// acquire waits for a slot of the worker.
func (s *Server) acquire(r *http.Request, q onlinewire.Request, wait time.Duration) (*worker.OnlineSlot, error) {
	current := s.worker.Load()
	if current == nil {
		return nil, fault.New(fault.Unavailable, "the process has no worker at the moment")
	}
	return current.AcquireOnline(r.Context(), wait, worker.Cost{PromptBytes: len(q.Body), MaxTokens: q.MaxTokens})
}

// retryAfter is what clients are told to wait after a refusal, in seconds.
const retryAfter = "1"

// refuse answers that the request got no answer of a server.
func refuse(w http.ResponseWriter, outcome string, status int, err error) {
	p := onlinewire.Problem{Message: err.Error(), Type: onlinewire.ServerError, Code: "unavailable"}
	h := w.Header()
	h.Set(onlinewire.Outcome, outcome)
	switch {
	case outcome == onlinewire.Full:
		status, p.Type, p.Code = http.StatusTooManyRequests, onlinewire.RateLimit, "too_many_requests"
		h.Set("Retry-After", retryAfter)
	case status == http.StatusBadRequest:
		p.Type, p.Code = onlinewire.InvalidRequest, "invalid"
		h.Set("X-Should-Retry", "false")
	case outcome == onlinewire.Failed:
		p.Code = "server_failed"
		h.Set("X-Should-Retry", "false")
	default:
		h.Set("Retry-After", retryAfter)
	}
	onlinewire.WriteProblem(w, status, p)
}

// errSilent is the cause of the end of a request of which nothing came for too long.
var errSilent = errors.New("the inference server sent nothing for too long")
