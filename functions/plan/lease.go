package plan

import (
	"context"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// A turn is given back, or over after turnFor without being renewed. It spares
// others work that one does already; if two have it after all, they do the
// same.
const (
	leaseDuration = 30 * time.Second
	leaseRenewal  = leaseDuration / 3
)

// ByTurns returns a planner for where many calls plan one run at once, as in
// clouds: of those that come to merge its ranges, or to unpack its inputs, one
// does at a time, and the others leave it to that one. Whoever has no time left
// leaves the rest to those who are asked next.
func (p *Planner) ByTurns() *Planner { return &Planner{Ports: p.Ports, leased: true} }

// acquireLease takes the run's turn; ok is false if somebody else has it. Without turns
// it is one of those in this process.
func (p *Planner) acquireLease(ctx context.Context, id identity.RunID, here *inProgress) (giveBack func(), ok bool, err error) {
	if !p.leased {
		return func() { here.end(id) }, here.begin(id), nil
	}
	var t record.PlanLease
	rev, _, err := host.Load(ctx, p.Docs, record.PlanLeaseKey(id), &t)
	if err != nil || t.Until.After(p.Clock.Now()) {
		return nil, false, err
	}
	rev, err = p.saveLease(ctx, id, p.Clock.Now().Add(leaseDuration), rev)
	if fault.Is(err, fault.Conflict) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	ctx, stop := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { rev = p.renewLease(ctx, id, rev) })
	return func() {
		stop()
		renewing.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := p.saveLease(ctx, id, time.Time{}, rev); err != nil && !fault.Is(err, fault.Conflict) {
			p.Log.WarnContext(ctx, "a turn was not given back; it will be over soon", "run", id, "error", err)
		}
	}, true, nil
}

// renewLease renews the turn until ctx ends, or somebody else has it. It returns the
// last revision that it knows.
func (p *Planner) renewLease(ctx context.Context, id identity.RunID, rev document.Revision) document.Revision {
	tick := time.NewTicker(leaseRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return rev
		case <-tick.C:
			next, err := p.saveLease(ctx, id, p.Clock.Now().Add(leaseDuration), rev)
			if err != nil { // over or not, nothing depends on it
				continue
			}
			rev = next
		}
	}
}

func (p *Planner) saveLease(ctx context.Context, id identity.RunID, until time.Time, rev document.Revision) (document.Revision, error) {
	return host.Save(ctx, p.Docs, record.PlanLeaseKey(id), record.PlanLease{Schema: record.Schema, Until: until.UTC()}, rev)
}

// timer returns when a part of the time that a call has is left: one of so many.
// Late tells that less is left, or less than what comes next takes.
func (p *Planner) timer(ctx context.Context, part time.Duration) (end time.Time, late func(next time.Duration) bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}, func(time.Duration) bool { return false }
	}
	end = deadline.Add(-deadline.Sub(p.Clock.Now()) / part)
	return end, func(next time.Duration) bool {
		now := p.Clock.Now()
		return !now.Before(end) || !now.Add(next).Before(deadline)
	}
}
