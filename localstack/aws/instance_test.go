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
	// A busy machine may see both at once; then the more urgent one comes first.
	notices := instance.Notices(t.Context())
	leads := map[string]time.Duration{}
	for range 2 {
		n := <-notices
		leads[n.Reason] = n.Lead
	}
	if lead := leads["rebalance"]; lead != 2*time.Minute {
		t.Errorf("the leads are %v, want 2 minutes for a rebalance", leads)
	}
	if lead := leads["spot"]; lead < time.Minute || lead > 2*time.Minute {
		t.Errorf("the leads are %v, want about 2 minutes for the spot notice", leads)
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
