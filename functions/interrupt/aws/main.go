// Command aws is interrupt as a function of AWS Lambda, called by EventBridge
// with what EC2 says of instances.
package main

import (
	"context"

	"rollout/functions/internal/lambdafn"
	"rollout/functions/interrupt"
	"rollout/shared/aws/stack"
)

func main() {
	lambdafn.Main("interrupt", func(s *stack.Stack) any {
		i := interrupt.New(s.Ports)
		return lambdafn.Notices(s.Ports, func(ctx context.Context, n lambdafn.Notice) error {
			return i.Drain(ctx, n.Instance, n.Reason)
		})
	})
}
