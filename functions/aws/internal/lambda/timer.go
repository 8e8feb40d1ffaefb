package lambda

import (
	"context"
	"encoding/json"
)

// Timer is a function that a schedule calls. What the schedule says is not
// looked at.
func Timer(handle func(context.Context) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, _ json.RawMessage) error {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		return handle(ctx)
	}
}
