package aws

import (
	"context"
	"log/slog"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/document"
	"rollout/shared/fault"
)

// FleetOptions configure a Fleet.
type FleetOptions struct {
	// Instance is the machine that the process runs on, for capacity.Membership.
	// It is nil outside EC2 instances, for example in a function.
	Instance *Instance
	// Docs gets what is seen of the groups, for people, in fleet/<pool>; nil notes nothing.
	Docs  document.Store
	Clock clock.Clock  // default: the system's
	Log   *slog.Logger // default: discards
	// SDK are further options of the client, for tests.
	SDK []func(*autoscaling.Options)
}

// Fleet is a set of EC2 Auto Scaling groups, one for each pool.
type Fleet struct {
	scaling *autoscaling.Client
	group   func(pool string) string
	options FleetOptions
}

var (
	_ capacity.Fleet      = (*Fleet)(nil)
	_ capacity.Withdrawer = (*Fleet)(nil)
	_ capacity.Membership = (*Fleet)(nil)
)

// NewFleet returns a fleet. group returns the name of a pool's Auto Scaling group.
// NewFleet sends no request.
func NewFleet(cfg awssdk.Config, group func(pool string) string, o FleetOptions) *Fleet {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Fleet{scaling: autoscaling.NewFromConfig(cfg, o.SDK...), group: group, options: o}
}

// AutoScalingGroupOf returns the name of the group that an instance belongs to. It
// fails with NotFound if the instance belongs to no group.
func (f *Fleet) AutoScalingGroupOf(ctx context.Context, instance string) (string, error) {
	out, err := f.scaling.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{
		InstanceIds: []string{instance},
	})
	if err != nil {
		return "", translate(ctx, err, "find the group of the instance %s", instance)
	}
	for _, in := range out.AutoScalingInstances {
		if awssdk.ToString(in.InstanceId) == instance {
			return awssdk.ToString(in.AutoScalingGroupName), nil
		}
	}
	return "", fault.New(fault.NotFound, "the instance %s belongs to no group", instance)
}

// lifecycle is the metadata path of the lifecycle state of an instance that an
// Auto Scaling group launched or attached; detached is the state after it was
// detached from the group.
const lifecycle, detached = "autoscaling/target-lifecycle-state", "Detached"

// InFleet reads the instance's metadata; see capacity.Membership.
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

// Terminate makes the group terminate this instance; see capacity.Membership.
func (f *Fleet) Terminate(ctx context.Context, mode capacity.TerminationMode) error {
	if f.options.Instance == nil {
		return fault.New(fault.NotFound, "this machine belongs to no fleet")
	}
	id, err := f.options.Instance.ID(ctx)
	if err != nil {
		return fault.Wrap(err, "leave the fleet")
	}
	err = f.terminateInstance(ctx, id, mode == capacity.Shrink)
	if mode == capacity.Shrink && hasReason(err, "min size") {
		// The desired size was lowered meanwhile and already excludes this instance.
		err = f.terminateInstance(ctx, id, false)
	}
	if hasReason(err, "not found") {
		return fault.WithKind(fault.NotFound, err, "terminate the instance %s", id)
	}
	return translate(ctx, err, "terminate the instance %s", id)
}

// terminateInstance terminates an instance of a group. shrink also lowers the
// group's desired size by one, so that the group does not replace the instance.
func (f *Fleet) terminateInstance(ctx context.Context, id string, shrink bool) error {
	in := &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: &shrink,
	}
	_, err := f.scaling.TerminateInstanceInAutoScalingGroup(ctx, in)
	return err
}

// hasReason reports whether Auto Scaling refused a request and its message contains
// reason. Auto Scaling uses one error code for all reasons.
func hasReason(err error, reason string) bool {
	return codeOf(err) == "ValidationError" && strings.Contains(err.Error(), reason)
}
