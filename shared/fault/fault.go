// Package fault is the closed set of error kinds that rollout acts on, and the
// classes under which a run counts its failed items.
//
// Code decides on kinds, never on an error's text; drivers translate their
// vendor's codes to kinds in one table each. The package never logs, retries
// or formats for a terminal: it only says what an error is.
package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says what a caller can do about an error.
type Kind uint8

// The closed set of kinds. The zero value is Internal: an error nobody
// classified is a bug, not something to retry.
const (
	Internal    Kind = iota // a bug or an unclassified error
	Invalid                 // the caller's input is wrong; repeating it is useless
	NotFound                // the named thing is not there
	Conflict                // somebody else wrote first; load again and decide anew
	Throttled               // ask again later, slower
	Unavailable             // the other side can't be reached or failed; ask again
	Exhausted               // a quota, disk or size limit is used up
	Denied                  // not permitted
	Corrupt                 // bytes do not have the digest or shape they must have
	Fenced                  // this process has lost its right to write
	Canceled                // the caller gave up
)

var kindNames = [...]string{"internal", "invalid", "not_found", "conflict", "throttled",
	"unavailable", "exhausted", "denied", "corrupt", "fenced", "canceled"}

// String returns the kind's name in lower case, such as "not_found".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Error is an error with a kind. Op says what was tried ("put object
// prompts/a.jsonl"); Remedy, where there is one, says what the user can do.
type Error struct {
	Kind       Kind
	Class      Class         // the item failure it amounts to; "" if none
	Op         string        // what was being done, with the thing's name
	Remedy     string        // what to do about it; "" if nothing is known
	RetryAfter time.Duration // the other side's own hint; 0 if none
	Err        error         // the cause; may be nil
}

// Error renders "op: cause (remedy)".
func (e *Error) Error() string {
	msg := e.Op
	if e.Err != nil {
		if msg != "" {
			msg += ": "
		}
		msg += e.Err.Error()
	}
	if msg == "" {
		msg = e.Kind.String()
	}
	if e.Remedy != "" {
		msg += " (" + e.Remedy + ")"
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error of the kind with a formatted message.
func New(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// Wrap adds what was being done to err and keeps its kind; nil stays nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindOf(err), Class: ClassOf(err), RetryAfter: RetryAfter(err), Op: fmt.Sprintf(format, args...), Err: err}
}

// WithKind gives err the kind and says what was being done; nil stays nil.
func WithKind(k Kind, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: k, Op: fmt.Sprintf(format, args...), Err: err}
}

// KindOf returns the kind of the outermost *Error in err's chain. Context errors
// are Canceled; anything else is Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Canceled
	}
	return Internal
}

// Is reports whether err is of the kind. A nil error is of no kind.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// Retriable reports whether asking again, unchanged, can succeed.
func Retriable(err error) bool {
	k := KindOf(err)
	return err != nil && (k == Throttled || k == Unavailable)
}

// RetryAfter returns the other side's own hint: that of the outermost *Error
// in err's chain that has one, or 0.
func RetryAfter(err error) time.Duration {
	for {
		var e *Error
		if !errors.As(err, &e) {
			return 0
		}
		if e.RetryAfter > 0 {
			return e.RetryAfter
		}
		err = e.Err
	}
}

// RemedyOf returns the outermost remedy in err's chain, or "" if there is none.
func RemedyOf(err error) string {
	for {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Remedy != "" {
			return e.Remedy
		}
		err = e.Err
	}
}
