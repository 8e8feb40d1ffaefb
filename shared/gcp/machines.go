package gcp

import (
	"context"
	"log/slog"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/fault"
)

var _ cloud.Installation = (*Stack)(nil)

// Machine returns the machine that the process runs on: an instance of Compute Engine, or
// a task of a Cloud Run job; see cloud.Installation.
func (s *Stack) Machine(local capacity.Source, log *slog.Logger) (capacity.Source, capacity.Membership) {
	if task, ok := taskOf(local); ok {
		return task, task
	}
	instance := NewInstance(local, InstanceOptions{Logger: log})
	return instance, noFleet{}
}

// noFleet is the fleet of a pool whose machines people start.
type noFleet struct{}

var (
	_ capacity.Fleet      = noFleet{}
	_ capacity.Membership = noFleet{}
)

// ScaleUp fails with NotFound; see capacity.Fleet.
func (noFleet) ScaleUp(_ context.Context, pool string, _ int) error {
	return &fault.Error{Kind: fault.NotFound, Err: fault.New(fault.NotFound, "the installation rents no machines"),
		Remedy: "start workers of the pool " + pool + " yourself"}
}

// InFleet returns false; see capacity.Membership.
func (noFleet) InFleet(context.Context) (bool, error) { return false, nil }

// Terminate fails with NotFound; see capacity.Membership.
func (noFleet) Terminate(context.Context, capacity.TerminationMode) error {
	return fault.New(fault.NotFound, "this machine belongs to no fleet")
}
