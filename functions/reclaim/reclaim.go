// Package reclaim looks, on a timer, for what messages failed to say: dead
// workers, lost messages, overdue deadlines. Of runs it only reports to
// coordinate; of workers it marks the dead, and forgets the long gone.
//
// It looks at runs that submit noted as open, and forgets the note of those
// that have ended: where no run is open there is nothing to read. What it
// remembers between scans only spares looks; a process that starts anew finds
// the same. It writes no other document of a run, and judges nobody right after a
// suspend: then everyone's heartbeat is overdue.
package reclaim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// retryAfter is how long effects, a plan or a finalize may be under way
// before the run is rung.
const retryAfter = 2 * time.Minute

// Reclaimer scans. One scan at a time.
type Reclaimer struct {
	host.Ports
	timings     health.Timings
	stateless   bool                         // it scans once, and somebody else long before and after
	last        time.Time                    // of a scan
	resumedAt   time.Time                    // when the clocks went apart last; zero if never
	checkedAt   map[identity.RunID]time.Time // when the dispatched shards of a run were looked at last
	futureBeats map[string]futureBeat        // of beats that are ahead of the clock, by worker
	onNeed      func(string, scaling.Demand) // is told what pools need; nil is nobody
}

// New returns a reclaimer.
func New(p host.Ports, t health.Timings) *Reclaimer {
	return &Reclaimer{Ports: p.WithSource("reclaim"), timings: t, checkedAt: map[identity.RunID]time.Time{}, futureBeats: map[string]futureBeat{}}
}

// Scan looks at every worker and every open run once.
func (r *Reclaimer) Scan(ctx context.Context) error {
	now := r.Clock.Now()
	if r.suspended(now) {
		r.Log.WarnContext(ctx, "back from a suspend, or the clock was set: nobody is judged until all had time to renew their heartbeats")
		r.resumedAt = now
	}
	if !r.resumedAt.IsZero() && now.Sub(r.resumedAt) < r.timings.Due(now).Sub(now) {
		return nil
	}
	open, failed := r.open(ctx, now) // one run's trouble must not hide another's
	if r.stateless && len(open) == 0 && !hourly(now) {
		return failed
	}
	beats, err := r.heartbeats(ctx, now)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, s := range open {
		if err := r.run(ctx, s, beats, now); err != nil {
			failed = errors.Join(failed, fault.Wrap(err, "look at run %s", s.Run))
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	others, err := r.pauseFailingPools(ctx, open, beats)
	failed = errors.Join(failed, err)
	if r.onNeed != nil {
		failed = errors.Join(failed, r.reportNeeds(ctx, others, beats, now))
	}
	if m := r.Watch.Meter; m != nil {
		m.RecordScan(observe.Scan{Runs: open, Heartbeats: slices.Collect(maps.Values(beats)), IsDead: func(b health.Heartbeat) bool { return r.timings.Dead(b, now) }})
	}
	return failed
}

// suspended reports whether the wall clock ran away from the monotonic one
// since the last scan.
func (r *Reclaimer) suspended(now time.Time) bool {
	last := r.last
	r.last = now
	if last.IsZero() {
		return false
	}
	return clocksDiverged(now.Sub(last), now.Round(0).Sub(last.Round(0)), r.timings.FailureTimeout)
}

// clocksDiverged tells a suspend by what the two clocks say passed between two scans:
// one stood still meanwhile, or both went on without the scans.
func clocksDiverged(mono, wall, failure time.Duration) bool {
	return (wall-mono).Abs() > failure/2 || mono > 4*failure
}

// run looks at one open run.
func (r *Reclaimer) run(ctx context.Context, s run.State, beats map[string]health.Heartbeat, now time.Time) error {
	if why := due(s, now); why != "" {
		if err := r.wake(ctx, s.Run, why); err != nil {
			return err
		}
	}
	if s.Phase != run.Running && s.Phase != run.Planning && s.Phase != run.Ending {
		return nil
	}
	return r.chunks(ctx, s, beats, now)
}

// due says why coordinate must look at a run now; "" if it need not.
func due(s run.State, now time.Time) string {
	old := apart(s.SavedAt, now) > retryInterval(s)
	switch {
	case s.Phase == run.Pausing || s.Phase == run.Ending:
		return "stopping"
	case s.Phase == run.Finalizing:
		if old {
			return "finalize is outstanding"
		}
	case !s.Complete && old && s.Phase != run.Paused && s.Phase != run.Interrupted:
		return "plan is outstanding"
	case len(s.Effects) > 0 && old:
		return "effects are outstanding"
	case !s.Deadline.IsZero() && !now.Before(s.Deadline) && s.Phase != run.Finalizing:
		return "the deadline is over"
	}
	return ""
}

// retryInterval is how long a run that was asked for something may be silent: twice
// as long each time that it was asked in vain. What never succeeds, or takes
// longer than a ring would wait, must not be done ever more often at once.
func retryInterval(s run.State) time.Duration {
	return min(retryAfter<<min(s.Retries, 8), maxRetryInterval)
}

func (r *Reclaimer) wake(ctx context.Context, id identity.RunID, why string) error {
	return r.Send(ctx, host.CoordinateQueue, events.Wakeup{Run: string(id), Reason: why})
}
