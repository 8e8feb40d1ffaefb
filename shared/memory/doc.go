// Package memory has drivers that keep everything in the process: documents, queues
// and blobs for simulations and tests.
//
// They pass the conformance suites of the ports, and work in a testing/synctest
// bubble. They never write to a disk, and they start no goroutine that outlives the
// call or the context that it serves.
package memory

import (
	"context"

	"rollout/shared/fault"
)

// canceled returns Canceled if ctx has ended. op names the failed operation.
func canceled(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", op)
}

// wake sends to a channel of capacity one, unless it is full.
func wake(hints chan<- struct{}) {
	select {
	case hints <- struct{}{}:
	default:
	}
}
