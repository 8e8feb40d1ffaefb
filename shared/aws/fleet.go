package aws

import (
	"context"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// FleetOptions are what a Fleet is not told by its port.
type FleetOptions struct {
	// Instance is the machine that this runs on, which may leave; nil where
	// there is none, as in a function.
	Instance *Instance
	// SDK are further options of the client, for tests.
	SDK []func(*autoscaling.Options)
}

// Fleet is groups of EC2 Auto Scaling, one a pool.
type Fleet struct {
	scaling *autoscaling.Client
	group   func(pool string) string
	options FleetOptions
}

var (
	_ capacity.Fleet      = (*Fleet)(nil)
	_ capacity.Membership = (*Fleet)(nil)
)

// NewFleet returns the fleet whose group of a pool has the name that group
// gives it; it asks for nothing yet.
func NewFleet(cfg awssdk.Config, group func(pool string) string, o FleetOptions) *Fleet {
	return &Fleet{scaling: autoscaling.NewFromConfig(cfg, o.SDK...), group: group, options: o}
}

// ScaleUp raises the desired size of the pool's group, and not over the group's
// own maximum; see capacity.Fleet. Auto Scaling has no condition for it.
func (f *Fleet) ScaleUp(ctx context.Context, pool string, machines int) error {
	name := f.group(pool)
	out, err := f.scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	if err != nil {
		return translate(ctx, err, "look at the fleet %s", name)
	}
	var found *types.AutoScalingGroup
	for i, g := range out.AutoScalingGroups {
		if awssdk.ToString(g.AutoScalingGroupName) == name && awssdk.ToString(g.Status) == "" { // else it is being deleted
			found = &out.AutoScalingGroups[i]
		}
	}
	if found == nil {
		return &fault.Error{Kind: fault.NotFound, Err: fault.New(fault.NotFound, "there is no fleet %s", name),
			Remedy: "deploy the stack with gpu=true, or start workers of the pool " + pool + " yourself"}
	}
	want := min(int32(min(machines, 1<<20)), awssdk.ToInt32(found.MaxSize))
	if want <= awssdk.ToInt32(found.DesiredCapacity) {
		return nil
	}
	_, err = f.scaling.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: &name, DesiredCapacity: &want, HonorCooldown: awssdk.Bool(false)})
	return translate(ctx, err, "raise the fleet %s to %d machines", name, want)
}

// AutoScalingGroupOf is the name of the group that an instance is one of; NotFound if it is
// in none.
func (f *Fleet) AutoScalingGroupOf(ctx context.Context, instance string) (string, error) {
	out, err := f.scaling.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: []string{instance}})
	if err != nil {
		return "", translate(ctx, err, "look for the group of %s", instance)
	}
	for _, in := range out.AutoScalingInstances {
		if awssdk.ToString(in.InstanceId) == instance {
			return awssdk.ToString(in.AutoScalingGroupName), nil
		}
	}
	return "", fault.New(fault.NotFound, "the instance %s is in no group", instance)
}

// lifecycle is the metadata that an instance has whose group brought it up, or
// took it in; "Detached" is one that was taken out again.
const lifecycle, detached = "autoscaling/target-lifecycle-state", "Detached"

// InFleet looks at the instance's metadata; see capacity.Membership.
func (f *Fleet) InFleet(ctx context.Context) (bool, error) {
	if f.options.Instance == nil {
		return false, nil
	}
	state, err := f.options.Instance.metadata(ctx, lifecycle)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && string(state) != detached, err
}

// Terminate has the group end this instance; see capacity.Membership.
func (f *Fleet) Terminate(ctx context.Context, after capacity.TerminationMode) error {
	if f.options.Instance == nil {
		return fault.New(fault.NotFound, "this is no machine of a fleet")
	}
	id, err := f.options.Instance.ID(ctx)
	if err != nil {
		return fault.Wrap(err, "leave the fleet")
	}
	err = f.terminateInstance(ctx, id, after == capacity.Shrink)
	if after == capacity.Shrink && hasReason(err, "min size") {
		// Somebody else made the group smaller meanwhile: it has one instance too many.
		err = f.terminateInstance(ctx, id, false)
	}
	if hasReason(err, "not found") {
		return fault.WithKind(fault.NotFound, err, "the instance %s leaves its fleet", id)
	}
	return translate(ctx, err, "the instance %s leaves its fleet", id)
}

func (f *Fleet) terminateInstance(ctx context.Context, id string, shrink bool) error {
	_, err := f.scaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{InstanceId: &id, ShouldDecrementDesiredCapacity: &shrink})
	return err
}

// hasReason reports whether Auto Scaling refused a request for the reason: one code
// stands for all of them.
func hasReason(err error, reason string) bool {
	return codeOf(err) == "ValidationError" && strings.Contains(err.Error(), reason)
}
