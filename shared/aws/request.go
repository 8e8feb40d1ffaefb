package aws

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aws/smithy-go/middleware"
)

// outcome records whether a failed attempt of one request may nevertheless have
// taken effect: its response was lost, or the service failed.
type outcome struct{ unknown atomic.Bool }

// addMiddleware observes each attempt of a request, below the SDK's retries.
func (o *outcome) addMiddleware(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("rolloutOutcome",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
			middleware.FinalizeOutput, middleware.Metadata, error,
		) {
			out, metadata, err := next.HandleFinalize(ctx, in)
			if err != nil && (codeOf(err) == "" || statusOf(err) >= 500) {
				o.unknown.Store(true)
			}
			return out, metadata, err
		}), "Retry", middleware.After)
}

// final is the error of a whole request. A driver that retries the unprocessed
// part of a batch must not retry it: the SDK already did.
type final struct{ err error }

func (f *final) Error() string { return f.err.Error() }

// permanent hides err's kind from retry.Policy, so that it is not retried.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	return &final{err}
}

// unpermanent returns the error that permanent wrapped, or err itself.
func unpermanent(err error) error {
	var f *final
	if errors.As(err, &f) {
		return f.err
	}
	return err
}
