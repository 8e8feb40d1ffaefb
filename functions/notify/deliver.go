package notify

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/core/notification"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

const (
	// subjectsAtOnce is how many subjects' events are sent concurrently.
	subjectsAtOnce = 4
	// failuresInARow is after how many failed attempts in one pass a destination is left
	// alone until the next one.
	failuresInARow = 3
	// maxProblem bounds what is kept of a destination's problem, in bytes.
	maxProblem = 300
	// settleTime is how long the result of an attempt may take to be noted, also after the
	// context has ended.
	settleTime = 5 * time.Second
)

// Deliver sends the events that are due, once each, and returns when the next one is; the zero
// time if none is pending. The errors of destinations are kept in the documents; it returns
// those of the installation's own stores.
func (n *Notifier) Deliver(ctx context.Context) (next time.Time, err error) {
	if n == nil {
		return time.Time{}, nil
	}
	p := &pass{Notifier: n, failures: map[string]int{}}
	var group errgroup.Group
	group.SetLimit(subjectsAtOnce)
	for d, err := range document.All(ctx, n.Docs, record.OutboxPrefix) {
		if err != nil {
			return time.Time{}, errors.Join(group.Wait(), fault.Wrap(err, "list the events to deliver"))
		}
		if ctx.Err() != nil {
			break // the others are for the next call
		}
		group.Go(func() error { return p.subject(ctx, d) })
	}
	err = errors.Join(group.Wait(), ctx.Err())
	return p.next, err
}

// pass is one call of Deliver.
type pass struct {
	*Notifier
	mu       sync.Mutex
	failures map[string]int // in a row, by destination
	next     time.Time      // when the next event is due; zero: none is known
}

// subject delivers the events of one subject, by its entry in the outbox, and removes the
// entry if none is pending.
func (p *pass) subject(ctx context.Context, entry document.Doc) error {
	subject := record.SubjectOfOutbox(entry.Key)
	var d record.Notifications
	if _, _, err := host.Load(ctx, p.Docs, record.NotifyKey(subject), &d); err != nil {
		return err
	}
	for _, to := range p.o.Destinations {
		if err := p.to(ctx, subject, &d, to); err != nil {
			return fault.Wrap(err, "deliver the events about %s", subject)
		}
	}
	if len(d.Pending) > 0 {
		return nil
	}
	err := p.Docs.Delete(ctx, entry.Key, entry.Revision)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil // another process has removed it, or more was recorded
	}
	return fault.Wrap(err, "remove %s", entry.Key)
}

// to delivers the events of a subject to one destination, as far as they are due. It replaces
// the document by its newest version.
func (p *pass) to(ctx context.Context, subject record.NotificationSubject, d *record.Notifications,
	to Destination) error {
	name := to.Name()
	if len(d.After(name)) == 0 {
		return p.trim(ctx, subject, d)
	}
	if at := d.Deliveries[name].NextAt(p.Clock.Now()); at.After(p.Clock.Now()) {
		p.dueAt(at)
		return nil
	}
	if !p.takes(name) {
		p.dueAt(p.Clock.Now().Add(p.o.Timeout))
		return nil
	}
	claimed := false
	got, err := p.change(ctx, subject, name, func(x notification.Delivery) (notification.Delivery, bool) {
		now := p.Clock.Now()
		claimed = x.Due(now)
		return x.Claim(now, p.lease()), claimed
	})
	*d = got
	if err != nil {
		return err
	}
	if !claimed {
		p.dueAt(got.Deliveries[name].NextAt(p.Clock.Now()))
		return nil
	}
	return p.send(ctx, subject, d, to)
}

// lease is how long a process may send the events of a subject: those that it begins within
// Timeout, and one more.
func (p *pass) lease() time.Duration { return 2*p.o.Timeout + settleTime }

// send sends the events of a claimed destination in order until one fails, or the claim is
// half over, and notes how far it came.
func (p *pass) send(ctx context.Context, subject record.NotificationSubject, d *record.Notifications,
	to Destination) error {
	name, begun := to.Name(), p.Clock.Now()
	var sent uint64
	var failure *notification.Failure
	for _, e := range d.After(name) {
		if p.Clock.Now().Sub(begun) > p.o.Timeout || ctx.Err() != nil {
			break
		}
		attempt, cancel := context.WithTimeout(ctx, p.o.Timeout)
		err := to.Deliver(attempt, e.Event)
		cancel()
		if err != nil {
			if ctx.Err() == nil { // else this process ends, which says nothing of the destination
				failure = failureOf(e.Sequence, err)
				p.Log.WarnContext(ctx, "an event is not delivered", "about", subject, "to", name, observe.KeyError, err)
			}
			break
		}
		sent = e.Sequence
	}
	p.count(name, failure != nil)
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	got, err := p.change(settle, subject, name, func(x notification.Delivery) (notification.Delivery, bool) {
		x = x.Delivered(sent)
		if failure != nil {
			x = x.Failed(*failure, p.Clock.Now())
		}
		return x, true
	})
	if err != nil {
		return err
	}
	if left := got.After(name); len(left) > 0 {
		p.dueAt(got.Deliveries[name].NextAt(p.Clock.Now()))
	}
	if before, now := d.Deliveries[name].GivenUp, got.Deliveries[name].GivenUp; now > before {
		p.Log.ErrorContext(ctx, "an event is given up", "about", subject, "to", name,
			observe.KeyReason, got.Deliveries[name].Problem)
	}
	*d = got
	return nil
}

func failureOf(sequence uint64, err error) *notification.Failure {
	return &notification.Failure{Sequence: sequence, Problem: text.Truncate(err.Error(), maxProblem, "…"),
		RetryAfter: fault.RetryAfter(err), Final: fault.Is(err, fault.Invalid)}
}

// change changes how far a destination is, and removes the events that all destinations have.
func (n *Notifier) change(ctx context.Context, subject record.NotificationSubject, destination string,
	f func(notification.Delivery) (next notification.Delivery, write bool)) (record.Notifications, error) {
	return host.Update(ctx, n.Docs, record.NotifyKey(subject),
		func(d record.Notifications, _ bool) (record.Notifications, bool, error) {
			next, write := f(d.Deliveries[destination])
			if !write {
				return d, false, nil
			}
			if d.Deliveries == nil {
				d.Deliveries = map[string]notification.Delivery{}
			}
			d.Schema, d.Deliveries[destination] = record.Schema, next
			d.Trim(n.names)
			return d, true, nil
		})
}

// trim removes events that all destinations have: those of a destination that left the config
// wait for nothing.
func (n *Notifier) trim(ctx context.Context, subject record.NotificationSubject, d *record.Notifications) error {
	trimmed := *d
	if trimmed.Trim(n.names); len(trimmed.Pending) == len(d.Pending) {
		return nil
	}
	got, err := host.Update(ctx, n.Docs, record.NotifyKey(subject),
		func(d record.Notifications, _ bool) (record.Notifications, bool, error) {
			d.Trim(n.names)
			return d, true, nil
		})
	*d = got
	return err
}

// takes reports whether a destination is asked further in this pass.
func (p *pass) takes(destination string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures[destination] < failuresInARow
}

// count counts an attempt for takes.
func (p *pass) count(destination string, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !failed {
		p.failures[destination] = 0
		return
	}
	p.failures[destination]++
}

// dueAt notes that an event is due at a time.
func (p *pass) dueAt(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.Clock.Now(); at.Before(now) {
		at = now
	}
	if p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
}
