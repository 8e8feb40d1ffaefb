package engine

import (
	"context"
	"errors"
)

// ServerError is in the chain of a fault that may be the whole server's, not the
// request's alone: no connection, one that broke, or a 5xx.
type ServerError struct {
	// Received says that the server had the request, at least a part of it.
	Received bool
	Err      error
}

func (t *ServerError) Error() string { return t.Err.Error() }

// Unwrap returns the cause.
func (t *ServerError) Unwrap() error { return t.Err }

// HangError is in the chain of the fault of a request that was given up because the
// server showed no sign of work on it. Whether it shows none to anybody is found
// out meanwhile.
type HangError struct {
	// ServerAtFault waits until that is known, some seconds at most, or ctx ends; it
	// reports whether the server is at fault, and not the request.
	ServerAtFault func(ctx context.Context) bool
	Err           error
}

func (h *HangError) Error() string { return h.Err.Error() }

// Unwrap returns the cause.
func (h *HangError) Unwrap() error { return h.Err }

// PartialUsage is in the chain of a fault whose request the server worked on all the
// same.
type PartialUsage struct {
	Usage Usage // as the server says; else the pieces that came count as tokens
	Err   error
}

func (s *PartialUsage) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *PartialUsage) Unwrap() error { return s.Err }

// UsageOf is what a failed request cost, as far as is known.
func UsageOf(err error) Usage {
	var s *PartialUsage
	if errors.As(err, &s) {
		return s.Usage
	}
	return Usage{}
}

// ErrWhitespace is in the chain of a Corrupt fault if a server that was told what
// shape to answer in went on with white space, from the start or amid the answer,
// until its tokens were used up or nobody listened any more. With the same seed it
// would do so again.
var ErrWhitespace = errors.New("the answer goes on in white space and no end")

// ServerMetrics is what a server tells of itself. Numbers are negative where it does
// not say.
type ServerMetrics struct {
	Start        string  // names this start of the server; "" if it does not say
	Running      float64 // requests being worked on
	Waiting      float64 // requests that wait for that
	KVCacheUsage float64 // share of the cache of keys and values in use, 0 to 1
	Preempted    float64 // requests that lost their place again, since the start
}

// UnknownMetrics are the vitals of a server that says nothing.
func UnknownMetrics() ServerMetrics {
	return ServerMetrics{Running: -1, Waiting: -1, KVCacheUsage: -1, Preempted: -1}
}
