package engine

import (
	"context"
	"errors"
)

// Trouble is in the chain of a fault that may be the whole server's, not the
// request's alone: no connection, one that broke, or a 5xx.
type Trouble struct {
	// Inside says that the server had the request, at least a part of it.
	Inside bool
	Err    error
}

func (t *Trouble) Error() string { return t.Err.Error() }

// Unwrap returns the cause.
func (t *Trouble) Unwrap() error { return t.Err }

// Hung is in the chain of the fault of a request that was given up because the
// server showed no sign of work on it. Whether it shows none to anybody is found
// out meanwhile.
type Hung struct {
	// Server waits until that is known, some seconds at most, or ctx ends; it
	// reports whether the server is at fault, and not the request.
	Server func(ctx context.Context) bool
	Err    error
}

func (h *Hung) Error() string { return h.Err.Error() }

// Unwrap returns the cause.
func (h *Hung) Unwrap() error { return h.Err }

// Spent is in the chain of a fault whose request the server worked on all the
// same.
type Spent struct {
	Usage Usage // as the server says; else the pieces that came count as tokens
	Err   error
}

func (s *Spent) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *Spent) Unwrap() error { return s.Err }

// SpentOn is what a failed request cost, as far as is known.
func SpentOn(err error) Usage {
	var s *Spent
	if errors.As(err, &s) {
		return s.Usage
	}
	return Usage{}
}

// ErrBlank is in the chain of a Corrupt fault if a server that was told what
// shape to answer in went on with white space, from the start or amid the answer,
// until its tokens were used up or nobody listened any more. With the same seed it
// would do so again.
var ErrBlank = errors.New("the answer goes on in white space and no end")

// Vitals is what a server tells of itself. Numbers are negative where it does
// not say.
type Vitals struct {
	Start     string  // names this start of the server; "" if it does not say
	Running   float64 // requests being worked on
	Waiting   float64 // requests that wait for that
	Cache     float64 // share of the cache of keys and values in use, 0 to 1
	Preempted float64 // requests that lost their place again, since the start
}

// Quiet are the vitals of a server that says nothing.
func Quiet() Vitals { return Vitals{Running: -1, Waiting: -1, Cache: -1, Preempted: -1} }
