package cloud

import "time"

// Profile says how the place of an installation differs from one machine.
type Profile struct {
	Capabilities Capabilities
	Hints        Hints
}

// Capabilities are the differences of a provider from one machine. The zero value
// describes an installation on one machine.
type Capabilities struct {
	// LongPoll is true if a receive waits in the queue service for a message.
	LongPoll bool
	// BilledQueues is true if each request to a queue costs money. Idle workers
	// then poll less often, and senders batch messages.
	BilledQueues bool
	// ManagedFleet is true if machines start and end automatically, as the pools
	// of the config need them. Only pools that answer prompts have machines.
	ManagedFleet bool
	// DeclaredQueues is true if a pool has queues only when the config declares
	// the pool. Otherwise the first use of a queue creates it.
	DeclaredQueues bool
	// RemoteBucket is true if the bucket is a service with permissions of its own: a
	// denied read may be allowed later without a change of the object. Otherwise a file
	// that can't be read stays so until its owner changes it.
	RemoteBucket bool
}

// Hints are instructions for the user in the provider's own commands. They are
// parts of sentences: lower case, no full stop.
type Hints struct {
	// PickupTime is how long an upload may take to become a run.
	PickupTime time.Duration
	// Start tells how to start a run that no function has picked up.
	Start string
	// Workers tells how to start workers of a pool without workers.
	Workers func(pool string) string
	// OtherPools tells what to do about a pool without workers while workers of others live. It is "" where a pool
	// without work has no workers.
	OtherPools string
	// Replacement tells how to replace a pool's draining workers.
	Replacement string
	// ConsoleOutput returns the command that shows a machine's console output.
	ConsoleOutput func(machine string) string
	// PendingUpload says when an upload becomes a run, and why it may not.
	PendingUpload string
}

// OneMachine returns the profile of an installation in a folder.
func OneMachine() Profile {
	return Profile{Hints: Hints{
		PickupTime: 5 * time.Second,
		Start:      "start `rollout up`",
		Workers:    func(string) string { return "start `rollout up`" },
		OtherPools: "let a server serve it, or add a [[pool]] of that name and model to rollout.toml, and start " +
			"`rollout up` again",
		Replacement:   "start `rollout up` again, or another `gpuworker`",
		ConsoleOutput: func(string) string { return "look at the log of its worker" },
		PendingUpload: "it is not a run yet: `rollout up` picks it up within seconds, " +
			"and looks every hour for what it missed",
	}}
}
