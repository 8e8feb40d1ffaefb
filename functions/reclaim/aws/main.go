// Command aws is reclaim as a function of AWS Lambda, called each minute. It
// raises the fleets of pools whose work waits.
package main

import (
	"context"

	"rollout/functions/internal/fleet"
	"rollout/functions/internal/lambdafn"
	"rollout/functions/reclaim"
	"rollout/shared/aws/stack"
	"rollout/shared/host"
)

func main() {
	lambdafn.Main("reclaim", func(s *stack.Stack) any {
		machines := fleet.Of(s, 0)
		return lambdafn.Timer(func(ctx context.Context) error {
			defer machines.Raise(ctx)
			return reclaim.Once(ctx, s.Ports, host.Timings(s.Deployment.Health), machines.Note)
		})
	})
}
