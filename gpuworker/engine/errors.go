package engine

import (
	"context"
	"errors"

	"rollout/shared/core/ratelimit"
)

// CrashError is in the chain of an Unavailable fault if the server crashed or
// was restarted while it had the request: the request may be the cause. If the
// connection broke and the server lives on, or if the request never reached the
// server, the fault is Unavailable without it. CrashErrors are comparable.
type CrashError struct {
	Server string // which one. Example: "http://127.0.0.1:8000/v1"
	Start  string // names the start of the server that ended; "" if it does not say
	Solo   bool   // the server worked on nothing else, as far as it reports that
}

func (e *CrashError) Error() string {
	if e.Start == "" {
		return "the inference server " + e.Server + " crashed during the request"
	}
	return "the inference server " + e.Server + ", started at " + e.Start + ", crashed during the request"
}

// StatusError is in the chain of the fault of a request that the server refused, or
// that it answered with an error.
type StatusError struct {
	Status int // of HTTP, as the body says or else the response
	// Named says that the server named the cause, which is the prompt's: it is too
	// long, or violates a content policy.
	Named bool
	// Quota says that a quota is used up that time alone does not fill again.
	Quota bool
	// Param is the member of the request that the server refuses; "" if it names none.
	Param string
	// RateLimit is what it says about its limits.
	RateLimit ratelimit.Report
	Err       error
}

func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StatusError) Unwrap() error { return e.Err }

// RateLimitOf returns what a server said about its limits with a fault.
func RateLimitOf(err error) ratelimit.Report {
	var s *StatusError
	if !errors.As(err, &s) {
		return ratelimit.Report{}
	}
	return s.RateLimit
}

// servedBy is in the chain of the fault of a request that a server got.
type servedBy struct {
	server string
	err    error
}

func (e *servedBy) Error() string { return e.err.Error() }
func (e *servedBy) Unwrap() error { return e.err }

// WithServer adds to a fault the name of the server that got the request.
func WithServer(err error, name string) error { return &servedBy{name, err} }

// ServerOf returns the name of the server that got the failed request; false if none
// got it, or the engine is a single server.
func ServerOf(err error) (name string, ok bool) {
	var e *servedBy
	if !errors.As(err, &e) {
		return "", false
	}
	return e.server, true
}

// ServerError is in the chain of a fault that may concern the whole server: no
// connection, a broken one, or a 5xx.
type ServerError struct {
	// Received says that the server received the request, at least in part.
	Received bool
	Err      error
}

func (e *ServerError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ServerError) Unwrap() error { return e.Err }

// ErrFailsForAll is in the chain of an Unavailable fault if the server failed for all
// requests, and did not die.
var ErrFailsForAll = errors.New("the inference server fails for all requests")

// ErrSilent is in the chain of the cause with which a caller cancels a request that
// showed no progress.
var ErrSilent = errors.New("no token came")

// HangError is in the chain of the fault of a request that was cancelled because
// the server showed no progress. Meanwhile the server is probed, to find out
// whether it hangs for all requests.
type HangError struct {
	// ServerAtFault waits for the result of the probe, a few seconds at most, or
	// until ctx ends. It reports whether the server is at fault, and not the
	// request.
	ServerAtFault func(ctx context.Context) bool
	// Whole says that the answer was not streamed by the engine's choice: if the server
	// is not at fault, a stream shows whether it works on the request.
	Whole bool
	Err   error
}

func (e *HangError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *HangError) Unwrap() error { return e.Err }

// WholeError is in the chain of the fault of a whole answer that was cut off, or that was
// cancelled in silence, although the server works: the same request as a stream may be
// answered.
type WholeError struct{ Err error }

func (e *WholeError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *WholeError) Unwrap() error { return e.Err }

// PartialUsage is in the chain of the fault of a request that cost tokens.
type PartialUsage struct {
	// Usage is as the server reports. Otherwise each received piece counts as a token; of
	// a whole answer the tokens are estimated, and Unknown.
	Usage Usage
	Err   error
}

func (e *PartialUsage) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PartialUsage) Unwrap() error { return e.Err }

// UsageOf returns what a failed request cost, as far as it is known.
func UsageOf(err error) Usage {
	var p *PartialUsage
	if errors.As(err, &p) {
		return p.Usage
	}
	return Usage{}
}

// ErrWhitespace is in the chain of a Corrupt fault if a server that was told the
// shape of its answer sent only white space, from the start or within the
// answer, until its tokens were used up or the client cancelled. With the same
// seed it would do so again.
var ErrWhitespace = errors.New("the answer continues in white space without an end")

// ServerMetrics is what a server reports of itself. Numbers are negative if it
// does not report them.
type ServerMetrics struct {
	Start        string  // names this start of the server; "" if it does not say
	Running      float64 // requests that the server works on
	Waiting      float64 // requests in the server's queue
	KVCacheUsage float64 // used share of the key-value cache, 0 to 1
	Preempted    float64 // requests that were moved back to the queue, since the start
	// Tokens are those generated since the start, and Steps the model's steps or other
	// signs that it works.
	Tokens, Steps float64
}

// UnknownMetrics returns the metrics of a server that reports nothing.
func UnknownMetrics() ServerMetrics {
	return ServerMetrics{Running: -1, Waiting: -1, KVCacheUsage: -1, Preempted: -1, Tokens: -1, Steps: -1}
}
