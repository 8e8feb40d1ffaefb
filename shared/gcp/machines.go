package gcp

import (
	"context"
	"log/slog"

	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/fault"
)

var _ cloud.Installation = (*Stack)(nil)

// Fleet returns a fleet without machines: people start the machines of a stack; see
// cloud.Installation.
func (s *Stack) Fleet() capacity.Fleet { return noFleet{} }

// Machine returns the Compute Engine instance that the process runs on, which belongs to
// no fleet; see cloud.Installation.
func (s *Stack) Machine(local capacity.Source, log *slog.Logger) (capacity.Source, capacity.Membership) {
	return NewInstance(local, InstanceOptions{Logger: log}), noFleet{}
}

// noFleet is the fleet of a stack that rents no machines.
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
