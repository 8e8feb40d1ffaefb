// Command aws is coordinate as a function of AWS Lambda, called by its queue.
package main

import (
	"rollout/functions/coordinate"
	"rollout/functions/internal/lambdafn"
	"rollout/shared/aws/stack"
	"rollout/shared/host"
	"rollout/shared/input"
)

func main() {
	lambdafn.Main("coordinate", func(s *stack.Stack) any {
		c := coordinate.New(s.Ports, input.NewIndex(s.Ports.Blobs, s.Ports.Docs), host.Timings(s.Deployment.Health), s.Deployment.Defaults.Limits.Grace.Std(), coordinate.Hears{})
		return lambdafn.Messages(s.Ports, c.Batch)
	})
}
