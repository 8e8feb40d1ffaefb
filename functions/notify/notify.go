// Package notify tells people and their programs about runs and pools: it records events, and
// delivers them to destinations outside the installation, such as a webhook.
//
//	reclaim, finalize ─▶ record ─▶ notify/<subject>: numbers, pending events ─▶ outbox/<subject>
//	                                         ▲                                        │
//	                                         └──── delivered, failed, given up ◀── Deliver ─▶ destination
//
// Recording and delivering are apart, so that a receiver that is slow or dead delays nothing
// else: a run ends, and its event arrives later. The steps are:
//
//  1. Record compares what a document says with what was told before (package notification),
//     and adds events with numbers to the document notify/<subject>, by compare-and-swap: each
//     event gets one id, one number and one text, however often recording is repeated.
//  2. It then notes the subject in the index outbox/.
//  3. Deliver takes the subjects of the index, claims a destination's turn, and sends its
//     events one by one, in order. What is sent and not noted, because the process ended, is
//     sent again, with the same id: delivery is at least once, and in order for each subject.
//  4. A destination that fails is asked again later (see notification.Delivery); after a day
//     its event is given up, which the log says and, of a run, `rollout status`.
//
// The package changes no document of a run besides its own. No run waits for a destination.
package notify

import (
	"context"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
	"rollout/shared/host"
)

// Destination is where events are delivered. It is safe for concurrent use.
type Destination interface {
	// Name returns a name that no other destination of the installation has. How far the
	// delivery is, is kept under it.
	Name() string
	// Deliver returns nil if the destination has the event, a CloudEvent in JSON. It is
	// Invalid if the destination will never take it. After any other error it is sent again,
	// not before the error's RetryAfter.
	Deliver(ctx context.Context, event []byte) error
}

// Options describe what a Notifier delivers, and where to.
type Options struct {
	Source       string // of all events: who sends them. Example: "rollout/acme-rollout"
	Destinations []Destination
	// Fleets are the pools for which the cloud may start machines; their problems are told.
	Fleets []string
	// Timeout is the longest attempt to deliver an event; required.
	Timeout time.Duration
}

// Notifier records and delivers events. It is safe for concurrent use; several processes may
// have one over the same documents. All methods of a nil Notifier do nothing.
type Notifier struct {
	host.Ports
	o     Options
	names []string // of the destinations
	added chan struct{}

	mu    sync.Mutex
	known map[identity.RunID]knownRun // open runs that can have something to tell
}

// knownRun is what is known of an open run, which saves reads.
type knownRun struct {
	told notification.RunMemory // what its document says
	run  describedRun
}

// New returns a notifier, or nil without destinations.
func New(p host.Ports, o Options) *Notifier {
	if len(o.Destinations) == 0 {
		return nil
	}
	n := &Notifier{Ports: p.WithSource("notify"), o: o, added: make(chan struct{}, 1),
		known: map[identity.RunID]knownRun{}}
	for _, to := range o.Destinations {
		n.names = append(n.names, to.Name())
	}
	return n
}

// Added returns a channel that has a value if events were recorded since it was read.
func (n *Notifier) Added() <-chan struct{} {
	if n == nil {
		return nil
	}
	return n.added
}
