package notify

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// told is one event to record.
type told struct {
	payload events.Payload
	at      time.Time // when it happened
}

// record adds the events that decide returns to the document of a subject, and notes the
// subject in the outbox while events are pending. decide gets the document as it is, changes
// what was told in it, reports whether it did, and may be called several times. record returns
// the document.
func (n *Notifier) record(ctx context.Context, subject record.NotificationSubject,
	decide func(*record.Notifications) (added []told, changed bool)) (record.Notifications, error) {
	adds := false
	change := func(d record.Notifications, _ bool) (record.Notifications, bool, error) {
		d.Schema = record.Schema
		added, changed := decide(&d)
		adds = len(added) > 0
		for _, t := range added {
			d.Sequence++
			event, err := n.encode(subject, d.Sequence, t)
			if err != nil {
				return d, false, err
			}
			d.Add(event)
		}
		return d, changed, nil
	}
	d, err := host.Update(ctx, n.Docs, record.NotifyKey(subject), change)
	if err != nil || len(d.Pending) == 0 {
		return d, err
	}
	entered, err := n.enterOutbox(ctx, subject, d.Sequence, adds)
	if entered {
		select {
		case n.added <- struct{}{}:
		default: // the one before is not taken yet
		}
	}
	return d, err
}

// encode returns an event as it is delivered.
func (n *Notifier) encode(subject record.NotificationSubject, sequence uint64, t told) ([]byte, error) {
	if t.at.IsZero() { // a state of an earlier version
		t.at = n.Clock.Now()
	}
	id := "" // of the content: pools of several installations may have one name
	if identity.RunID(subject).Valid() {
		id = fmt.Sprintf("%s.%d", subject, sequence)
	}
	meta := events.Meta{ID: id, Source: n.o.Source, Subject: string(subject), Time: t.at.UTC(),
		Sequence: events.FormatSequence(sequence)}
	b, err := events.Encode(t.payload, meta)
	return b, fault.WithKind(fault.Internal, err, "encode an event about %s", subject)
}

// enterOutbox writes the entry of a subject: anew if events were added (see
// record.OutboxEntry), else only where a crash came before it. It reports whether it wrote.
func (n *Notifier) enterOutbox(ctx context.Context, subject record.NotificationSubject, sequence uint64,
	added bool) (entered bool, err error) {
	entry := record.OutboxEntry{Schema: record.Schema, Sequence: sequence, At: n.Clock.Now().UTC()}
	_, err = host.Update(ctx, n.Docs, record.OutboxKey(subject),
		func(old record.OutboxEntry, found bool) (record.OutboxEntry, bool, error) {
			if entered = added || !found; !entered {
				return old, false, nil
			}
			return entry, true, nil
		})
	if err != nil {
		return false, fault.Wrap(err, "note the events about %s", subject)
	}
	return entered, nil
}

// PoolReport is a report of why a pool has no machine.
type PoolReport struct {
	Pool string
	notification.Problem
}

// Pools records problems with the machines of pools. The same report may come many times.
func (n *Notifier) Pools(ctx context.Context, reports []PoolReport) error {
	if n == nil {
		return nil
	}
	for _, r := range reports {
		if err := n.pool(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// reportAge is how old the cloud's note of why no machine comes may be. Older ones are of
// problems that are over.
const reportAge = time.Hour

// problemKinds are what people are told of the cloud's kinds of problems; others are
// notification.LaunchFailed.
var problemKinds = map[scaling.ProblemKind]notification.Kind{
	scaling.Stockout: notification.CapacityMissing,
	scaling.Quota:    notification.QuotaReached,
}

// Fleets records why the cloud starts no machines for pools, by the notes in fleet/<pool>.
func (n *Notifier) Fleets(ctx context.Context) error {
	if n == nil || len(n.o.Fleets) == 0 {
		return nil
	}
	keys := make([]string, len(n.o.Fleets))
	for i, pool := range n.o.Fleets {
		keys[i] = record.FleetKey(pool)
	}
	docs, err := n.Docs.GetMany(ctx, keys)
	if err != nil {
		return fault.Wrap(err, "read why no machines come")
	}
	var reports []PoolReport
	for i, d := range docs {
		var f record.Fleet
		if d.Revision == "" {
			continue
		}
		if err := record.Decode(d.Value, &f, "document "+d.Key); err != nil {
			return err
		}
		if n.Clock.Now().Sub(f.AbsentAt) > reportAge {
			continue
		}
		kind := cmp.Or(problemKinds[f.Problem], notification.LaunchFailed)
		reports = append(reports, PoolReport{n.o.Fleets[i], notification.Problem{Kind: kind, At: f.AbsentAt,
			Reason: f.Absent}})
	}
	return n.Pools(ctx, reports)
}

func (n *Notifier) pool(ctx context.Context, r PoolReport) error {
	payload := poolPayload(r)
	if payload == nil {
		return fault.New(fault.Internal, "the problem of pool %s has the kind %q", r.Pool, r.Kind)
	}
	_, err := n.record(ctx, record.PoolSubject(r.Pool), func(d *record.Notifications) (added []told, changed bool) {
		next, tell := d.Pool.Next(r.Problem)
		if tell {
			added = []told{{payload: payload, at: r.At}}
		}
		changed = next[r.Kind] != d.Pool[r.Kind]
		d.Pool = next
		return added, changed
	})
	return fault.Wrap(err, "record the problem of pool %s", r.Pool)
}

// poolPayload returns the payload of a report; nil for a kind that is not about pools.
func poolPayload(r PoolReport) events.Payload {
	p := events.PoolProblem{Pool: r.Pool, Reason: clip(r.Reason)}
	switch r.Kind {
	case notification.CapacityMissing:
		return events.CapacityMissing{PoolProblem: p}
	case notification.QuotaReached:
		return events.QuotaReached{PoolProblem: p}
	case notification.LaunchFailed:
		return events.LaunchFailed{PoolProblem: p}
	case notification.BootFailed:
		return events.BootFailed{PoolProblem: p}
	}
	return nil
}
