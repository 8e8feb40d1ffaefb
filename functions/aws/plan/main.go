// Command plan is package plan as a function of AWS Lambda, called for runs and
// for ranges of their inputs.
package main

import (
	"context"

	"rollout/events"
	"rollout/functions/aws/internal/lambda"
	"rollout/functions/plan"
	"rollout/shared/aws"
	"rollout/shared/fault"
)

func main() {
	lambda.Main("plan", func(s *aws.Stack) any {
		planner := plan.New(s.Ports, plan.Options{Leases: true})
		return lambda.Invocations(s.Ports, func(ctx context.Context, p events.Payload) error {
			switch p := p.(type) {
			case events.RunSubmitted:
				return planner.Submitted(ctx, p)
			case events.PlanRange:
				return planner.CutRange(ctx, p)
			}
			return fault.New(fault.Invalid, "event %T is not for plan", p)
		})
	})
}
