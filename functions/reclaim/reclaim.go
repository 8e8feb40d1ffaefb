// Package reclaim finds, on a timer, what messages failed to report: dead
// workers, lost messages, overdue deadlines.
//
//	timer ─▶ open runs ─▶ heartbeats ─▶ each run: wake-up, lost and done shards ─▶ coordinate
//	             │             └─▶ marks of dead workers, old heartbeats deleted
//	             └─▶ plans that are overdue ─▶ plan
//
// A scan takes these steps:
//
//  1. After a suspend of the machine, or a change of the clock, skip scans until
//     all workers had time to renew their heartbeats.
//  2. Read the index of open runs. Free the work files of runs that have ended, if a
//     Freer is set, and move the runs to the index of ended ones. Ask for the plan of runs
//     that coordinate has no state of.
//  3. Read the heartbeats. Mark dead workers once. Delete the heartbeats of
//     workers that ended long ago.
//  4. For each open run, wake coordinate if effects, a plan, a finalize or a
//     deadline are overdue, and report the dispatched shards that are done or
//     lost.
//  5. Count the failed boots of machines. Pause the runs of pools whose machines fail one
//     after another, and report the demand for machines.
//  6. Record what people are told of runs and pools, if a Notifier is set.
//
// Once an hour a scan of its own finds uploads whose event was lost; see ScanUploads. Once a day
// what uploads to the batch API have left behind is deleted; see SweepOrphans. An Expirer deletes
// the documents of runs that ended long ago.
//
// The package reports to coordinate, plan and submit. Of a run it writes the index of runs,
// events for people, and what stays of one that has expired. It deletes objects: what uploads
// left behind; if a Freer is set, the work files of runs that have ended; and with the documents of
// a run its work files. Its memory between scans only saves reads: a new process finds the same.
package reclaim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"rollout/events"
	"rollout/functions/notify"
	"rollout/functions/status"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
)

// retryAfter is how long effects, a plan or a finalize may take before
// coordinate is woken for the run.
const retryAfter = 2 * time.Minute

// Reclaimer scans. It allows one scan at a time.
type Reclaimer struct {
	host.Ports
	timings      health.Timings
	index        *input.Index                 // finds the roles of shards
	reader       *status.Reader               // of what ended runs came to
	idle         bool                         // the last scan found no open run
	unindexed    bool                         // the index of runs is not complete
	stateless    bool                         // scans once: see ScanOnce
	last         time.Time                    // of a scan
	resumedAt    time.Time                    // when a suspend was last detected; zero for never
	checkedAt    map[identity.RunID]time.Time // when the dispatched shards of a run were last read
	damaged      map[identity.RunID]bool      // open runs that have ended and can't be entered
	states       decoded[run.State]
	beats        decoded[health.Heartbeat]
	futureBeats  map[string]futureBeat        // heartbeats that are ahead of the clock, by worker
	onNeed       func(string, scaling.Demand) // optional: called with the demand of each pool
	bootPause    time.Duration                // after a failed boot of a pool's machine; 0 counts none
	longestBoots map[string]time.Duration     // of the pools with machines; boots of other pools don't count
	freer        *Freer                       // optional: see FreeWith
	notifier     *notify.Notifier             // optional: see NotifyWith
}

// New returns a reclaimer.
func New(p host.Ports, t health.Timings) *Reclaimer {
	return &Reclaimer{Ports: p.WithSource("reclaim"), timings: t, index: input.NewIndex(p.Blobs, p.Docs),
		reader:    status.NewReader(p, config.DefaultDeployment(), cloud.Profile{}),
		checkedAt: map[identity.RunID]time.Time{}, damaged: map[identity.RunID]bool{}, futureBeats: map[string]futureBeat{}}
}

// Scan checks every worker and every open run once. An error about one run does
// not stop the checks of others.
func (r *Reclaimer) Scan(ctx context.Context) error {
	now := r.Clock.Now()
	if r.suspended(now) {
		r.Log.WarnContext(ctx, "the machine was suspended, or the clock was set: "+
			"no worker is judged dead until all had time to renew their heartbeats")
		r.resumedAt = now
	}
	if !r.resumedAt.IsZero() && now.Sub(r.resumedAt) < r.timings.Due(now).Sub(now) {
		return nil
	}
	open, failed := r.open(ctx, now)
	r.idle = len(open) == 0 && failed == nil
	if r.stateless && len(open) == 0 && !hourly(now) {
		return failed
	}
	beats, err := r.heartbeats(ctx, now)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, s := range open {
		if err := r.run(ctx, s, beats, now); err != nil {
			failed = errors.Join(failed, fault.Wrap(err, "check run %s", s.Run))
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	failed = errors.Join(failed, r.countBoots(ctx, beats, now))
	others, err := r.pauseFailingPools(ctx, open, beats)
	failed = errors.Join(failed, err)
	if r.onNeed != nil {
		failed = errors.Join(failed, r.reportNeeds(ctx, others, beats, now))
	}
	failed = errors.Join(failed, r.notify(ctx, open, beats))
	if m := r.Watch.Meter; m != nil {
		isDead := func(b health.Heartbeat) bool { return r.timings.Dead(b, now) }
		m.RecordScan(observe.Scan{Runs: open, Heartbeats: slices.Collect(maps.Values(beats)), IsDead: isDead})
	}
	return failed
}

// maxIndexPages bounds what a call of ScanOnce does for the index of runs of an earlier
// version.
const maxIndexPages = 20

// Idle reports whether the last scan found no open run, so that the next one may wait. It is
// for the caller of Scan.
func (r *Reclaimer) Idle() bool { return r.idle }

// ScheduleOptions are what ScanOnce takes besides its ports.
type ScheduleOptions struct {
	Timings health.Timings
	Uploads UploadOptions
	// BootPause is the pause after the first failed boot of a pool's machine; 0 counts none.
	BootPause time.Duration
	// LongestBoots is how long a boot may take, by pool. Boots of other pools don't count.
	LongestBoots map[string]time.Duration
	// OnNeed is optional. It is called with the demand of the pools of running runs.
	OnNeed func(pool string, d scaling.Demand)
	// KeepDocuments is how long after their ends the documents of runs are kept; 0 keeps them.
	KeepDocuments time.Duration
	// Notifier is optional. It records what happens to runs and pools. The caller has it deliver
	// that when the scan is over.
	Notifier *notify.Notifier
}

// ScanOnce scans as a function that a schedule calls each minute, which keeps nothing
// between two calls. In the first minute of each hour it scans for uploads, too, and once a day
// sweeps orphans. Then, and while a run is open, it deletes documents of runs that have expired.
//
// Without memory it judges workers by their heartbeats and its own clock alone,
// and relies on that the clocks of all machines are kept. It cannot notice that a
// clock was set back. A suspend of its process is harmless, because it reads the
// clock before the documents. While no run is open, it reads the heartbeats only
// in the first minute of each hour, to delete old ones: all else would be an
// empty list.
func ScanOnce(ctx context.Context, p host.Ports, o ScheduleOptions) error {
	r := New(p, o.Timings)
	r.stateless, r.onNeed, r.notifier = true, o.OnNeed, o.Notifier
	r.bootPause, r.longestBoots = o.BootPause, o.LongestBoots
	full := hourly(p.Clock.Now())
	err := r.Scan(ctx)
	if full || r.unindexed {
		err = errors.Join(err, r.BuildIndex(ctx, maxIndexPages))
	}
	if full {
		err = errors.Join(err, ScanUploads(ctx, p, o.Uploads),
			SweepOrphans(ctx, p, SweepOptions{Every: sweepEvery, Longest: longestSweep, CheckOwner: o.Uploads.CheckOwner}))
	}
	if o.KeepDocuments > 0 && (full || !r.idle) {
		expireSome(ctx, r.Ports, o.KeepDocuments)
	}
	return err
}

// maxExpireCalls bounds what a call of ScanOnce does for runs that expire.
const maxExpireCalls = 5

// expireSome logs errors, so that they repeat no scan.
func expireSome(ctx context.Context, p host.Ports, keep time.Duration) {
	e := NewExpirer(p, ExpireOptions{Keep: keep})
	for range maxExpireCalls {
		more, err := e.Expire(ctx)
		if err != nil {
			p.Log.WarnContext(ctx, "documents of old runs are not deleted: trying again", observe.KeyError, err)
		}
		if err != nil || !more {
			return
		}
	}
}

// hourly reports whether it is the first minute of an hour.
func hourly(now time.Time) bool { return now.Minute() == 0 }

// suspended reports whether the machine was suspended, or its clock set, since
// the last scan.
func (r *Reclaimer) suspended(now time.Time) bool {
	last := r.last
	r.last = now
	if last.IsZero() {
		return false
	}
	return clocksDiverged(now.Sub(last), now.Round(0).Sub(last.Round(0)), r.timings.FailureTimeout)
}

// clocksDiverged detects a suspend by the time between two scans on the monotonic
// and on the wall clock: either the two differ, or both went on for long without a
// scan.
func clocksDiverged(mono, wall, failure time.Duration) bool {
	return (wall-mono).Abs() > failure/2 || mono > 4*failure
}

// run checks one open run.
func (r *Reclaimer) run(ctx context.Context, s run.State, beats map[string]health.Heartbeat, now time.Time) error {
	why := due(s, now)
	if why == "" && r.workersJoined(s, beats, now) {
		why = "workers joined"
	}
	if why != "" {
		if err := r.wake(ctx, s.Run, why); err != nil {
			return err
		}
	}
	if s.Phase != run.Running && s.Phase != run.Planning && s.Phase != run.Ending {
		return nil
	}
	return r.chunks(ctx, s, beats, now)
}

// Few shards are in flight of a run that shares its pool, so that a worker which joins finds
// nothing in the queue until one of them is done. joinedWithin is how long a worker counts
// as new, and fewInFlight how many shards in flight are enough for any.
const (
	joinedWithin = 2 * time.Minute
	fewInFlight  = 256
)

// workersJoined reports whether workers have started since the run's last step, and may
// find nothing to do. One that waits for its server counts: coordinate sends for it, too.
func (r *Reclaimer) workersJoined(s run.State, beats map[string]health.Heartbeat, now time.Time) bool {
	if s.Phase != run.Running || s.AllSent() || s.InFlight.Len() >= fewInFlight ||
		now.Sub(r.checkedAt[s.Run]) < checkEvery {
		return false
	}
	for _, b := range beats {
		if b.State != health.Draining && b.State != health.Gone && !r.timings.Dead(b, now) && b.Started.After(s.SavedAt) &&
			now.Sub(b.Started) < joinedWithin {
			return true
		}
	}
	return false
}

// due returns why coordinate must be woken for a run now; "" if it need not be.
func due(s run.State, now time.Time) string {
	old := apart(s.SavedAt, now) > retryInterval(s)
	switch {
	case s.Phase == run.Pausing || s.Phase == run.Ending:
		return "stopping"
	case s.Phase == run.Finalizing:
		if old {
			return "finalize is outstanding"
		}
	case s.PlanOutstanding() && old && s.Phase != run.Paused && s.Phase != run.Interrupted:
		return "plan is outstanding"
	case len(s.Effects) > 0 && old:
		return "effects are outstanding"
	case !s.Deadline.IsZero() && !now.Before(s.Deadline) && s.Phase != run.Finalizing:
		return "the deadline is over"
	}
	return ""
}

// retryInterval is how long a run may save no state before it is woken again. It
// doubles with each retry without success, so that work that always fails, or
// takes longer than the interval, is not started more and more often at once.
func retryInterval(s run.State) time.Duration {
	return min(retryAfter<<min(s.Retries, 8), maxRetryInterval)
}

// wake asks coordinate to look at the run.
func (r *Reclaimer) wake(ctx context.Context, id identity.RunID, why string) error {
	return r.Send(ctx, host.CoordinateQueue, events.Wakeup{Run: string(id), Reason: why})
}
