package emulators

import (
	"context"
	"testing"
	"time"

	"rollout/shared/aws"
	"rollout/shared/capacity"
)

// emptyMachine is a machine without GPUs and notices.
type emptyMachine struct{}

func (emptyMachine) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: []capacity.GPU{}}, nil
}

func (emptyMachine) Notices(ctx context.Context) <-chan capacity.Notice {
	none := make(chan capacity.Notice)
	context.AfterFunc(ctx, func() { close(none) })
	return none
}

// The mock moves a notice's time with the clock, so that its lead is always about
// two minutes.
func TestSpotInstanceReceivesItsNotices(t *testing.T) {
	t.Parallel()
	instance := aws.NewInstance(StartMetadata(t, "spot", "--mock-delay-sec", "2", "--rebalance-delay-sec", "1"),
		emptyMachine{}, aws.InstanceOptions{Poll: 50 * time.Millisecond})
	notices := instance.Notices(t.Context())
	if first := <-notices; first != (capacity.Notice{Reason: "rebalance", Lead: 2 * time.Minute}) {
		t.Errorf("the first notice is %+v", first)
	}
	if second := <-notices; second.Reason != "spot" || second.Lead < time.Minute || second.Lead > 2*time.Minute {
		t.Errorf("the second notice is %+v", second)
	}
}

// The mock announces maintenance for a date in the past by default.
func TestInstanceReceivesMaintenanceNotices(t *testing.T) {
	t.Parallel()
	instance := aws.NewInstance(StartMetadata(t, "events", "--code", "instance-retirement", "--state", "active"),
		emptyMachine{}, aws.InstanceOptions{Poll: 50 * time.Millisecond})
	if got := <-instance.Notices(t.Context()); got.Reason != "maintenance" {
		t.Errorf("the notice is %+v", got)
	}
}
