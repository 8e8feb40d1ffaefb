// Command aws is coordinate as a function of AWS Lambda, called by its queue.
package main

import (
	"context"

	"rollout/functions/coordinate"
	"rollout/functions/internal/lambdafn"
	"rollout/shared/host"
	"rollout/shared/input"
)

func main() {
	lambdafn.Main("coordinate", func(_ context.Context, f *lambdafn.Function) (any, error) {
		c := coordinate.New(f.Ports, input.NewIndex(f.Blobs, f.Docs), host.Timings(f.Deployment.Health), f.Deployment.Defaults.Limits.Grace.Std(), coordinate.Hears{})
		return lambdafn.Messages(f.Ports, c.Batch), nil
	})
}
