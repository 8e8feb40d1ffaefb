// Command aws is coordinate as a function of AWS Lambda, called by its queue. It
// raises the fleets of the pools that it sent work to.
package main

import (
	"context"

	"rollout/functions/aws/internal/lambda"
	"rollout/functions/coordinate"
	"rollout/functions/internal/autoscaler"
	"rollout/shared/aws"
	need "rollout/shared/core/scaling"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/queue"
)

func main() {
	lambda.Main("coordinate", func(s *aws.Stack) any {
		machines := autoscaler.ForInstallation(s, autoscaler.Cooldown)
		sent := func(pool string, open int) {
			machines.Record(pool, need.Demand{OpenShards: open, UnclaimedShards: open})
		}
		c := coordinate.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs), host.Timings(s.Deployment.Health), s.Deployment.Defaults.Limits.Grace.Std(), coordinate.Hooks{OnSent: sent}).AmongMany().Serving(s.Deployment.InferPools())
		return lambda.Messages(s.Ports, func(ctx context.Context, ms []queue.Message) []string {
			defer machines.ScaleUp(ctx)
			return c.HandleBatch(ctx, ms)
		})
	})
}
