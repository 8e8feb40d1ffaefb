package memory

import (
	"context"

	"rollout/shared/fault"
)

// firstOf returns the first error there is.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// canceled returns Canceled if ctx has ended.
func canceled(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", op)
}

// wake leaves a hint in a channel of capacity one.
func wake(hints chan<- struct{}) {
	select {
	case hints <- struct{}{}:
	default:
	}
}
