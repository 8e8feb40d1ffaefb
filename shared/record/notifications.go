package record

import (
	"encoding/json"
	"slices"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
)

// NotificationSubject is what events for people are about: a run, by its id, or a pool, as
// "pool/small".
type NotificationSubject string

// RunSubject returns the subject of a run.
func RunSubject(r identity.RunID) NotificationSubject { return NotificationSubject(r) }

// PoolSubject returns the subject of a pool's machines.
func PoolSubject(pool string) NotificationSubject { return NotificationSubject("pool/" + pool) }

// NotifyPrefix is the prefix of what people were told.
const NotifyPrefix = "notify/"

// NotifyKey returns the key of the Notifications about a subject. Only reclaim and, on one
// machine, finalize write them.
func NotifyKey(s NotificationSubject) string { return NotifyPrefix + string(s) }

// OutboxPrefix is the prefix of the index of subjects with events that are not delivered.
const OutboxPrefix = "outbox/"

// OutboxKey returns the key of the OutboxEntry of a subject.
func OutboxKey(s NotificationSubject) string { return OutboxPrefix + string(s) }

// SubjectOfOutbox returns the subject of an OutboxKey.
func SubjectOfOutbox(key string) NotificationSubject {
	return NotificationSubject(key[min(len(key), len(OutboxPrefix)):])
}

// Notifications is the document notify/<run> or notify/pool/<pool>: what people were told
// about a run or a pool, and what is to be delivered yet.
type Notifications struct {
	Schema   int                     `json:"schema"`
	Sequence uint64                  `json:"sequence"` // of the newest event
	Run      notification.RunMemory  `json:"run,omitzero"`
	Pool     notification.PoolMemory `json:"pool,omitempty"`
	// Pending are the events that not every destination has, the oldest first, at most
	// MaxPending. Dropped counts those that were left out because there were more.
	Pending []PendingEvent `json:"pending,omitempty"`
	Dropped int            `json:"dropped,omitempty"`
	// Deliveries are how far each destination is, by its name.
	Deliveries map[string]notification.Delivery `json:"deliveries,omitempty"`
}

// PendingEvent is an event as it is delivered, however often.
type PendingEvent struct {
	Sequence uint64          `json:"sequence"`
	Event    json.RawMessage `json:"event"` // a CloudEvent
}

// MaxPending bounds the events of a subject that wait. With events of at most 8 KiB the
// document stays below the size that documents may have.
const MaxPending = 16

// Add appends an event. Beyond MaxPending the oldest one is dropped.
func (n *Notifications) Add(event []byte) {
	n.Pending = append(n.Pending, PendingEvent{n.Sequence, event})
	if over := len(n.Pending) - MaxPending; over > 0 {
		n.Pending = slices.Delete(n.Pending, 0, over)
		n.Dropped += over
	}
}

// After returns the pending events that a destination does not have.
func (n Notifications) After(destination string) []PendingEvent {
	have := n.Deliveries[destination].Sequence
	i := slices.IndexFunc(n.Pending, func(e PendingEvent) bool { return e.Sequence > have })
	if i < 0 {
		return nil
	}
	return n.Pending[i:]
}

// Trim removes the pending events that all of the destinations have.
func (n *Notifications) Trim(destinations []string) {
	n.Pending = slices.DeleteFunc(slices.Clone(n.Pending), func(e PendingEvent) bool {
		return !slices.ContainsFunc(destinations, func(to string) bool { return n.Deliveries[to].Sequence < e.Sequence })
	})
}

// OutboxEntry is the document outbox/<run> or outbox/pool/<pool>, an entry of the index of
// subjects with events that are not delivered. Whoever adds events writes it after the
// Notifications, always anew: whoever delivers deletes the revision that it read before it
// found nothing pending.
type OutboxEntry struct {
	Schema   int       `json:"schema"`
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
}
