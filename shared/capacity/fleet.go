package capacity

import "context"

// Fleet is the machines that an installation rents for its pools while they have
// work.
type Fleet interface {
	// ScaleUp starts machines until the pool has so many, or as many as it may
	// have. It never ends a machine: machines leave by themselves. Of two
	// concurrent calls the lower may win, so callers repeat the call while work
	// waits. A pool without machines in the fleet is NotFound.
	ScaleUp(ctx context.Context, pool string, machines int) error
}

// Withdrawer is a Fleet that can give up machines that it asked for and did not get. A
// fleet without it keeps asking until it has them.
type Withdrawer interface {
	// Withdraw gives up the pool's requests for machines that have not started. It ends no
	// machine that works; one that begins to boot during the call may end. Callers call it
	// while no work of the pool waits, or between boots that fail; a pool without requests, or without machines in the
	// fleet, is no error.
	Withdraw(ctx context.Context, pool string) error
}

// Membership is this machine's place in a fleet.
type Membership interface {
	// InFleet reports whether this machine belongs to a fleet. Only such a machine
	// may be terminated.
	InFleet(ctx context.Context) (bool, error)
	// Terminate gives the machine up: it is switched off soon after. The mode says
	// whether the fleet starts another one. A machine that belongs to no fleet, or
	// not any more, is NotFound.
	Terminate(ctx context.Context, mode TerminationMode) error
}

// TerminationMode says what a fleet does after a machine left.
type TerminationMode string

// The modes.
const (
	Shrink  TerminationMode = "shrink"  // start no other machine: the work is done
	Replace TerminationMode = "replace" // start another one: this machine is unfit
)
