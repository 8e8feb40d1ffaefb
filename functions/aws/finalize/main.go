// Command finalize is package finalize as a function of AWS Lambda, called for
// runs that end, and for segments of their files.
package main

import (
	"context"

	"rollout/events"
	"rollout/functions/aws/internal/lambda"
	"rollout/functions/finalize"
	"rollout/shared/aws"
	"rollout/shared/fault"
	"rollout/shared/input"
)

func main() {
	lambda.Main("finalize", func(s *aws.Stack) any {
		f := finalize.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs),
			finalize.Options{Segments: &finalize.SegmentOptions{}, Prices: s.Deployment})
		return lambda.Invocations(s.Ports, func(ctx context.Context, p events.Payload) error {
			switch p := p.(type) {
			case events.Finalize:
				return f.Finalize(ctx, p)
			case events.FinalizeSegment:
				return f.WriteSegment(ctx, p)
			}
			return fault.New(fault.Invalid, "event %T is not for finalize", p)
		})
	})
}
