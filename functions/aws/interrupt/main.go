// Command aws is interrupt as a function of AWS Lambda, called by EventBridge
// with what EC2 and Auto Scaling say of instances.
package main

import (
	"context"

	"rollout/functions/aws/internal/lambda"
	"rollout/functions/interrupt"
	"rollout/shared/aws"
	"rollout/shared/fault"
)

func main() {
	lambda.Main("interrupt", func(s *aws.Stack) any {
		h := handler{interrupt.New(s.Ports), s, aws.NewFleet(s.AWS, s.Deployment.Cloud.FleetName, aws.FleetOptions{})}
		return lambda.Notices(s.Ports, h.handle)
	})
}

type handler struct {
	*interrupt.Interrupter
	stack *aws.Stack
	fleet *aws.Fleet
}

func (h handler) handle(ctx context.Context, n lambda.Notice) error {
	switch n.Kind {
	case lambda.Preempted:
		return h.Preempted(ctx, n.Instance, n.Reason, h.poolOf)
	case lambda.Terminated, lambda.LaunchFailed:
		pool, ok := h.poolOfGroup(n.ScalingGroup)
		switch {
		case !ok: // of somebody else's group
			return nil
		case n.Kind == lambda.LaunchFailed:
			return h.LaunchFailed(ctx, pool, n.Reason, n.At)
		}
		return h.Ended(ctx, interrupt.EndedMachine{Pool: pool, Instance: n.Instance, Reason: n.Reason, At: n.At})
	}
	return h.Drain(ctx, n.Instance, n.Reason)
}

// poolOf is the pool that an instance came up for.
func (h handler) poolOf(ctx context.Context, instance string) (string, error) {
	group, err := h.fleet.AutoScalingGroupOf(ctx, instance)
	if err != nil {
		return "", err
	}
	if pool, ok := h.poolOfGroup(group); ok {
		return pool, nil
	}
	return "", fault.New(fault.NotFound, "the instance %s is one of %s", instance, group)
}

func (h handler) poolOfGroup(group string) (string, bool) {
	for _, p := range h.stack.Deployment.InferPools() {
		if h.stack.Deployment.Cloud.FleetName(p.Name) == group {
			return p.Name, true
		}
	}
	return "", false
}
