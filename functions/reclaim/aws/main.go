// Command aws is reclaim as a function of AWS Lambda, called each minute.
package main

import (
	"context"

	"rollout/functions/internal/lambdafn"
	"rollout/functions/reclaim"
	"rollout/shared/aws/stack"
	"rollout/shared/host"
)

func main() {
	lambdafn.Main("reclaim", func(s *stack.Stack) any {
		return lambdafn.Timer(func(ctx context.Context) error {
			return reclaim.Once(ctx, s.Ports, host.Timings(s.Deployment.Health))
		})
	})
}
