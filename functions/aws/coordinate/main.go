// Command coordinate is package coordinate as a function of AWS Lambda, called by
// its queue. It scales up the fleets of the pools that it sent work to.
package main

import (
	"context"

	"rollout/functions/aws/internal/lambda"
	"rollout/functions/coordinate"
	"rollout/functions/internal/autoscaler"
	"rollout/shared/aws"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/prices"
	"rollout/shared/queue"
)

func main() {
	lambda.Main("coordinate", func(s *aws.Stack) any {
		machines := autoscaler.ForInstallation(s, autoscaler.Cooldown)
		c := coordinate.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs), coordinate.Options{
			Timings:     host.Timings(s.Deployment.Health),
			Grace:       s.Deployment.Defaults.Limits.Grace.Std(),
			Hooks:       coordinate.Hooks{OnSent: machines.Record},
			Shared:      true,
			Prices:      prices.Of(s.Deployment.Cloud.Provider),
			Pools:       append([]config.Pool{}, s.Deployment.Pools...), // not nil: a stack has no other queues
			StepContext: lambda.ContinueChain,
		})
		return lambda.Messages(s.Ports, func(ctx context.Context, ms []queue.Message) []string {
			defer machines.ScaleUp(ctx)
			return c.HandleBatch(ctx, ms)
		})
	})
}
