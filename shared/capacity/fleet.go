package capacity

import "context"

// Fleet is the machines that an installation rents for its pools, as many as
// there is work for.
type Fleet interface {
	// ScaleUp lets machines come up until the pool has so many, or as many as it
	// may have. It never sends one away: machines leave by themselves. Of two
	// calls at once the lower may hold, so who needs machines looks again. A
	// pool that has no machines of the fleet's is NotFound.
	ScaleUp(ctx context.Context, pool string, machines int) error
}

// Membership is this machine's place in a fleet.
type Membership interface {
	// InFleet reports whether this machine has a place in a fleet: one that has
	// none is not the fleet's to give up.
	InFleet(ctx context.Context) (bool, error)
	// Terminate gives the machine up: it is switched off soon after. The fleet
	// shrinks by it, or lets another come up in its stead. A machine that has
	// no place in a fleet, or none any more, is NotFound.
	Terminate(ctx context.Context, after TerminationMode) error
}

// TerminationMode says what becomes of the place of a machine that leaves.
type TerminationMode string

// The successions.
const (
	Shrink  TerminationMode = "shrink"  // there is no work for it
	Replace TerminationMode = "replace" // there may be, but this machine is not fit for it
)
