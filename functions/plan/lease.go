package plan

import (
	"context"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// A lease is released, or expires leaseDuration after its last renewal. It only
// saves work: if two calls hold it after all, they write the same bytes.
const (
	leaseDuration = 30 * time.Second
	leaseRenewal  = leaseDuration / 3
)

// acquireLease acquires the run's lease and renews it until release is called.
// ok is false if another call holds it. Without Options.Leases the holders are
// the calls in local.
func (p *Planner) acquireLease(ctx context.Context, id identity.RunID,
	local *inProgress) (release func(), ok bool, err error) {
	if !p.opts.Leases {
		return func() { local.end(id) }, local.begin(id), nil
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
			p.Log.WarnContext(ctx, "plan lease not released: it expires by itself", observe.KeyRun, id, observe.KeyError, err)
		}
	}, true, nil
}

// renewLease renews the lease until ctx ends. It returns the revision of the
// last renewal that succeeded. A failed renewal is tried again, and harmless.
func (p *Planner) renewLease(ctx context.Context, id identity.RunID, rev document.Revision) document.Revision {
	tick := time.NewTicker(leaseRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return rev
		case <-tick.C:
			next, err := p.saveLease(ctx, id, p.Clock.Now().Add(leaseDuration), rev)
			if err != nil {
				continue
			}
			rev = next
		}
	}
}

func (p *Planner) saveLease(ctx context.Context, id identity.RunID, until time.Time,
	rev document.Revision) (document.Revision, error) {
	lease := record.PlanLease{Schema: record.Schema, Until: until.UTC()}
	return host.Save(ctx, p.Docs, record.PlanLeaseKey(id), lease, rev)
}

// timer divides the time until ctx's deadline by part: end is when the last of
// these parts begins, the zero time without a deadline. late reports whether end
// has come, or the time left is too short for the next step.
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
