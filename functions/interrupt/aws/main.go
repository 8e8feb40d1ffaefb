// Command aws is interrupt as a function of AWS Lambda, called by EventBridge
// with what EC2 and Auto Scaling say of instances.
package main

import (
	"context"

	"rollout/functions/internal/lambdafn"
	"rollout/functions/interrupt"
	"rollout/shared/aws"
	"rollout/shared/aws/stack"
	"rollout/shared/fault"
)

func main() {
	lambdafn.Main("interrupt", func(s *stack.Stack) any {
		h := handler{interrupt.New(s.Ports), s, aws.NewFleet(s.AWS, s.Deployment.Cloud.FleetOf, aws.FleetOptions{})}
		return lambdafn.Notices(s.Ports, h.handle)
	})
}

type handler struct {
	*interrupt.Interrupter
	stack *stack.Stack
	fleet *aws.Fleet
}

func (h handler) handle(ctx context.Context, n lambdafn.Notice) error {
	switch n.Kind {
	case lambdafn.Taken:
		return h.Taken(ctx, n.Instance, n.Reason, h.poolOf)
	case lambdafn.Ended, lambdafn.Absent:
		pool, ok := h.poolOfGroup(n.Group)
		switch {
		case !ok: // of somebody else's group
			return nil
		case n.Kind == lambdafn.Absent:
			return h.Absent(ctx, pool, n.Reason, n.At)
		}
		return h.Ended(ctx, interrupt.Ending{Pool: pool, Instance: n.Instance, Reason: n.Reason, At: n.At})
	}
	return h.Drain(ctx, n.Instance, n.Reason)
}

// poolOf is the pool that an instance came up for.
func (h handler) poolOf(ctx context.Context, instance string) (string, error) {
	group, err := h.fleet.GroupOf(ctx, instance)
	if err != nil {
		return "", err
	}
	if pool, ok := h.poolOfGroup(group); ok {
		return pool, nil
	}
	return "", fault.New(fault.NotFound, "the instance %s is one of %s", instance, group)
}

func (h handler) poolOfGroup(group string) (string, bool) {
	for _, p := range h.stack.Deployment.Answering() {
		if h.stack.Deployment.Cloud.FleetOf(p.Name) == group {
			return p.Name, true
		}
	}
	return "", false
}
