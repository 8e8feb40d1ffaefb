// Command aws is finalize as a function of AWS Lambda, called for runs that
// have come to their end, and for segments of their files.
package main

import (
	"context"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/functions/internal/lambdafn"
	"rollout/shared/aws/stack"
	"rollout/shared/fault"
	"rollout/shared/input"
)

func main() {
	lambdafn.Main("finalize", func(s *stack.Stack) any {
		f := finalize.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs)).InSegments(finalize.Segments{})
		return lambdafn.Tasks(s.Ports, func(ctx context.Context, p events.Payload) error {
			switch p := p.(type) {
			case events.Finalize:
				return f.Finalize(ctx, p)
			case events.FinalizeSegment:
				return f.Segment(ctx, p)
			}
			return fault.New(fault.Invalid, "event %T is not for finalize", p)
		})
	})
}
