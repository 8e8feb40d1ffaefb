package cloud

import "time"

// Profile is what differs between the places where an installation may be.
type Profile struct {
	Capabilities Capabilities
	Hints        Hints
}

// Capabilities say what a provider does otherwise than one machine. The zero
// value is an installation on one machine.
type Capabilities struct {
	// LongPoll: a receive waits at the queue's service until a message comes.
	LongPoll bool
	// BilledQueues: each request to a queue costs money, so idle workers ask
	// seldom, and messages gather before they are sent.
	BilledQueues bool
	// ManagedFleet: machines start and end by themselves, as the pools of the
	// config need them. Only pools that answer prompts have machines.
	ManagedFleet bool
	// DeclaredQueues: a pool has queues only if the config declares it. Elsewhere
	// a queue comes into being when it is first used.
	DeclaredQueues bool
}

// Hints say what a person does about trouble, in the provider's own commands.
// They are parts of sentences: lower case, no full stop.
type Hints struct {
	// PickupTime is how long an upload may take to become a run.
	PickupTime time.Duration
	// Start is what lets a run begin that no function has picked up.
	Start string
	// Workers returns what brings workers to a pool that has none.
	Workers func(pool string) string
	// Replacement is what replaces a pool's draining workers.
	Replacement string
	// ConsoleOutput returns the command that shows what a machine printed.
	ConsoleOutput func(machine string) string
	// PendingUpload says when an upload becomes a run, and why it may not.
	PendingUpload string
}

// OneMachine returns the profile of an installation in a folder.
func OneMachine() Profile {
	return Profile{Hints: Hints{
		PickupTime:    5 * time.Second,
		Start:         "start `rollout up`",
		Workers:       func(string) string { return "start `rollout up`" },
		Replacement:   "start `rollout up` again, or another `gpuworker`",
		ConsoleOutput: func(string) string { return "look at the log of its worker" },
		PendingUpload: "it is not a run yet: `rollout up` picks it up within seconds",
	}}
}
