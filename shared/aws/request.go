package aws

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aws/smithy-go/middleware"
)

// outcome remembers whether an earlier try of one request may have been carried
// out although it failed: its reply was lost, or the service broke down.
type outcome struct{ open atomic.Bool }

// watch adds itself to a client's requests, within the SDK's repetitions.
func (o *outcome) watch(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("rolloutOutcome",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleFinalize(ctx, in)
			if err != nil && (codeOf(err) == "" || statusOf(err) >= 500) {
				o.open.Store(true)
			}
			return out, metadata, err
		}), "Retry", middleware.After)
}

// final is an error that a driver's own repetition of what was left undone
// must not repeat: the SDK has done that already.
type final struct{ err error }

func (f *final) Error() string { return f.err.Error() }

// permanent hides err's kind from retry.Policy.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	return &final{err}
}

// unpermanent returns what permanent hid.
func unpermanent(err error) error {
	var f *final
	if errors.As(err, &f) {
		return f.err
	}
	return err
}
