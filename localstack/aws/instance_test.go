package aws

import (
	"context"
	"testing"
	"time"

	"rollout/shared/aws"
	"rollout/shared/capacity"
)

// computer has nothing and tells nothing.
type computer struct{}

func (computer) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: []capacity.GPU{}}, nil
}

func (computer) Notices(ctx context.Context) <-chan capacity.Notice {
	none := make(chan capacity.Notice)
	context.AfterFunc(ctx, func() { close(none) })
	return none
}

// Amazon's stand-in moves a notice's time along with the clock: its lead is
// always about two minutes.
func TestASpotInstanceHearsOfItsEnd(t *testing.T) {
	t.Parallel()
	instance := aws.NewInstance(StartMetadata(t, "spot", "--mock-delay-sec", "2", "--rebalance-delay-sec", "1"), computer{}, aws.InstanceOptions{Poll: 50 * time.Millisecond})
	notices := instance.Notices(t.Context())
	if first := <-notices; first != (capacity.Notice{Reason: "rebalance", Lead: 2 * time.Minute}) {
		t.Errorf("the first notice is %+v", first)
	}
	if second := <-notices; second.Reason != "spot" || second.Lead < time.Minute || second.Lead > 2*time.Minute {
		t.Errorf("the second notice is %+v", second)
	}
}

// It announces maintenance for a date long ago unless told otherwise.
func TestAnInstanceHearsOfMaintenance(t *testing.T) {
	t.Parallel()
	instance := aws.NewInstance(StartMetadata(t, "events", "--code", "instance-retirement", "--state", "active"), computer{}, aws.InstanceOptions{Poll: 50 * time.Millisecond})
	if got := <-instance.Notices(t.Context()); got.Reason != "maintenance" {
		t.Errorf("the notice is %+v", got)
	}
}
