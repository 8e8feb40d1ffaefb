// Package fault defines the kinds of errors that rollout acts on, and the classes
// by which a run counts its failed items.
//
// Both sets are closed. Code decides by an error's kind and never by its text. Each
// driver translates its vendor's codes to kinds in one table. The package does not
// log, retry, or format for a terminal.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what a caller can do about an error.
type Kind uint8

// The kinds. The zero value is Internal: an error without a kind is a bug, and must
// not be retried.
const (
	Internal    Kind = iota // a bug or an unclassified error
	Invalid                 // the caller's input is wrong; do not retry
	NotFound                // the named thing does not exist
	Conflict                // another writer was first: load again and decide again
	Throttled               // retry later, at a lower rate
	Unavailable             // the other side failed or cannot be reached: retry
	Exhausted               // a quota, disk or size limit is used up
	Denied                  // not permitted
	Corrupt                 // bytes have the wrong digest or format
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

// Error is an error with a kind.
type Error struct {
	Kind       Kind
	Class      Class         // of the item that fails with it; may be ""
	Op         string        // the operation with its object: "put object prompts/a.jsonl"
	Remedy     string        // what the user can do, as an instruction; may be ""
	RetryAfter time.Duration // the other side's hint when to retry; 0 if it gave none
	Err        error         // the cause; may be nil
}

// Error returns "op: cause (remedy)".
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
	switch inner := RemedyOf(e.Err); {
	case e.Remedy == "":
	case inner != "" && strings.HasSuffix(msg, inner+")"): // one pair of brackets for both
		msg = strings.TrimSuffix(msg, ")") + "; " + e.Remedy + ")"
	default:
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

// Wrap adds the failed operation to err and keeps its kind, class and hint. It
// returns nil for a nil err.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindOf(err), Class: ClassOf(err), RetryAfter: RetryAfter(err),
		Op: fmt.Sprintf(format, args...), Err: err}
}

// WithKind adds the failed operation to err and gives it the kind. It returns nil
// for a nil err.
func WithKind(k Kind, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: k, Op: fmt.Sprintf(format, args...), Err: err}
}

// KindOf returns the kind of the outermost *Error in err's chain. Without one, the
// errors of a context are Canceled, and all others are Internal.
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

// Is reports whether err has the kind. It is false for a nil err.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// Retriable reports whether repeating the operation unchanged can succeed.
func Retriable(err error) bool {
	k := KindOf(err)
	return err != nil && (k == Throttled || k == Unavailable)
}

// RetryAfter returns the hint of the outermost *Error in err's chain that has one, or
// 0.
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

// RemedyOf returns the outermost remedy in err's chain, or "".
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
