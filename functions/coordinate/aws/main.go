// Command aws is coordinate as a function of AWS Lambda, called by its queue. It
// raises the fleets of the pools that it sent work to.
package main

import (
	"context"

	"rollout/functions/coordinate"
	"rollout/functions/internal/fleet"
	"rollout/functions/internal/lambdafn"
	"rollout/shared/aws/stack"
	need "rollout/shared/engine/fleet"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/queue"
)

func main() {
	lambdafn.Main("coordinate", func(s *stack.Stack) any {
		machines := fleet.Of(s, fleet.Often)
		sent := func(pool string, open int) { machines.Note(pool, need.Need{Open: open, Waiting: open}) }
		c := coordinate.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs), host.Timings(s.Deployment.Health), s.Deployment.Defaults.Limits.Grace.Std(), coordinate.Hears{Sent: sent}).AmongMany().Serving(s.Deployment.Answering())
		return lambdafn.Messages(s.Ports, func(ctx context.Context, ms []queue.Message) []string {
			defer machines.Raise(ctx)
			return c.Batch(ctx, ms)
		})
	})
}
