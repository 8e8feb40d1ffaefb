// Package reclaim looks, on a timer, for what messages failed to say: dead
// workers, lost messages, overdue deadlines. It only reports to coordinate.
//
// It keeps nothing between scans but the clock of the last one, writes no
// run's document, and judges nobody right after a suspend: then everyone's
// heartbeat is overdue.
package reclaim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"rollout/events"
	"rollout/shared/engine/health"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/engine/schedule"
	"rollout/shared/engine/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// outstanding is how long effects, a plan or a finalize may be under way
// before the run is rung.
const outstanding = 2 * time.Minute

// Reclaimer scans. One scan at a time.
type Reclaimer struct {
	host.Ports
	timings   health.Timings
	last      time.Time
	unplanned time.Time               // when unplanned runs were looked for last
	ended     map[identity.RunID]bool // runs that need no more looking
}

// New returns a reclaimer.
func New(p host.Ports, t health.Timings) *Reclaimer {
	return &Reclaimer{Ports: p.From("reclaim"), timings: t, ended: map[identity.RunID]bool{}}
}

// Scan looks at every worker and every open run once.
func (r *Reclaimer) Scan(ctx context.Context) error {
	now := r.Clock.Now()
	if r.suspended(now) {
		r.Log.WarnContext(ctx, "back from a suspend: nobody is judged this time")
		return nil
	}
	beats, err := r.beats(ctx, now)
	if err != nil {
		return err
	}
	if now.Sub(r.unplanned) > outstanding {
		r.unplanned = now
		if err := r.ringUnplanned(ctx, now); err != nil {
			return err
		}
	}
	var failed error // one run's trouble must not hide another's
	err = host.Each(ctx, r.Docs, "coordinator/", func(s run.State) error {
		if s.Phase.Ended() {
			r.ended[s.Run] = true
			return nil
		}
		if err := r.run(ctx, s, beats, now); err != nil {
			failed = errors.Join(failed, fault.Wrap(err, "look at run %s", s.Run))
		}
		return ctx.Err()
	})
	return errors.Join(failed, err)
}

// RingAll asks coordinate to look at every open run. It is called once, when a
// process starts.
func (r *Reclaimer) RingAll(ctx context.Context) error {
	return host.Each(ctx, r.Docs, "coordinator/", func(s run.State) error {
		if s.Phase.Ended() {
			return nil
		}
		if !s.Complete {
			if err := r.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(s.Run)}); err != nil {
				return err
			}
		}
		return r.ring(ctx, s.Run, "start")
	})
}

// ringUnplanned asks plan for runs that coordinate never heard of: the event
// of their submission was lost.
func (r *Reclaimer) ringUnplanned(ctx context.Context, now time.Time) error {
	return host.Each(ctx, r.Docs, "run/", func(m record.Manifest) error {
		if m.Refused != "" || r.ended[m.Run] {
			return nil
		}
		_, err := r.Docs.Get(ctx, record.CoordinatorKey(m.Run))
		if !fault.Is(err, fault.NotFound) {
			return err
		}
		return r.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(m.Run)})
	})
}

// suspended reports whether the wall clock ran away from the monotonic one
// since the last scan.
func (r *Reclaimer) suspended(now time.Time) bool {
	last := r.last
	r.last = now
	if last.IsZero() {
		return false
	}
	return slept(now.Sub(last), now.Round(0).Sub(last.Round(0)), r.timings.FailureTimeout)
}

// slept tells a suspend by what the two clocks say passed between two scans:
// one stood still meanwhile, or both went on without the scans.
func slept(mono, wall, failure time.Duration) bool {
	return (wall-mono).Abs() > failure/2 || mono > 4*failure
}

// beats reads every worker's beat, and reports those found dead: once each.
func (r *Reclaimer) beats(ctx context.Context, now time.Time) (map[string]health.Beat, error) {
	out := map[string]health.Beat{}
	err := host.Each(ctx, r.Docs, "beat/", func(b health.Beat) error {
		out[b.Worker] = b
		if b.State != health.Gone && r.timings.Dead(b, now) {
			return r.failed(ctx, b, now)
		}
		return nil
	})
	return out, err
}

// failed marks a dead worker; whoever makes the mark reports it.
func (r *Reclaimer) failed(ctx context.Context, b health.Beat, now time.Time) error {
	var first bool
	_, err := host.Update(ctx, r.Docs, record.WorkerKey(b.Worker), func(m record.WorkerMark, _ bool) (record.WorkerMark, bool, error) {
		first = m.Failed.IsZero()
		m.Schema, m.Failed = record.Schema, now.UTC()
		return m, first, nil
	})
	if err == nil && first {
		r.Log.WarnContext(ctx, events.ObserveWorkerFailed, "worker", b.Worker, "due_at", b.DueAt, "overdue", now.Sub(b.DueAt), "shards", len(b.Holds))
	}
	return err
}

// run looks at one open run.
func (r *Reclaimer) run(ctx context.Context, s run.State, beats map[string]health.Beat, now time.Time) error {
	if why := due(s, now); why != "" {
		if err := r.ring(ctx, s.Run, why); err != nil {
			return err
		}
	}
	if s.Phase != run.Running && s.Phase != run.Planning && s.Phase != run.Ending {
		return nil
	}
	held := map[int]health.Held{}
	for _, b := range beats {
		if r.timings.Dead(b, now) {
			continue
		}
		for _, h := range b.Holds {
			if h.Run == s.Run {
				held[h.Shard] = h
			}
		}
	}
	for _, c := range s.InFlight.Chunks {
		if err := r.chunk(ctx, s, c, held, beats, now); err != nil {
			return err
		}
	}
	return nil
}

// due says why coordinate must look at a run now; "" if it need not.
func due(s run.State, now time.Time) string {
	old := now.Sub(s.SavedAt) > outstanding
	switch {
	case s.Phase == run.Pausing || s.Phase == run.Ending:
		return "stopping"
	case s.Phase == run.Finalizing && old:
		return "finalize is outstanding"
	case !s.Complete && old && s.Phase != run.Paused && s.Phase != run.Interrupted:
		return "plan is outstanding"
	case len(s.Effects) > 0 && old:
		return "effects are outstanding"
	case !s.Deadline.IsZero() && !now.Before(s.Deadline) && s.Phase != run.Finalizing:
		return "the deadline is over"
	}
	return ""
}

// maxPerScan bounds how many shards of one chunk a scan looks at.
const maxPerScan = 1000

// chunk looks at the dispatched shards of a chunk that no living worker
// lists. A shard of a dead holder is lost at once; one that nobody claimed
// only when its chunk is old enough for its message to be lost.
func (r *Reclaimer) chunk(ctx context.Context, s run.State, c schedule.Chunk, held map[int]health.Held, beats map[string]health.Beat, now time.Time) error {
	var keys []string
	var shards []int
	for n := c.Lo; n < c.Hi && len(keys) < maxPerScan; n++ {
		if _, ok := held[n]; !ok {
			keys = append(keys, identity.ShardKey(s.Run, n))
			shards = append(shards, n)
		}
	}
	if len(keys) == 0 || !c.Due(now) && !anyDead(beats, r.timings, now) {
		return nil
	}
	docs, err := r.Docs.GetMany(ctx, keys)
	if err != nil {
		return err
	}
	waiting := r.waiting(ctx, s, now.Sub(c.SentAt))
	var out []events.Payload
	for i, raw := range docs {
		d := shard.New(s.Run, shards[i])
		if raw.Revision != "" {
			if err := json.Unmarshal(raw.Value, &d); err != nil {
				return fault.As(fault.Corrupt, err, "decode document %s", raw.Key)
			}
		}
		if p := r.judge(d, c, beats, waiting, now); p != nil {
			out = append(out, p)
		}
	}
	return r.Send(ctx, host.CoordinateQueue, out...)
}

// judge turns the verdict on one shard into a report, or nil.
func (r *Reclaimer) judge(d shard.Doc, c schedule.Chunk, beats map[string]health.Beat, waiting bool, now time.Time) events.Payload {
	var beat *health.Beat
	if b, ok := beats[d.Worker]; ok {
		beat = &b
	}
	lost := events.ShardLost{Run: string(d.Run), Shard: d.Shard, Generation: c.Generation, Worker: d.Worker}
	switch v := r.timings.Judge(d, beat, now); v {
	case health.Finished:
		if !c.Due(now) {
			return nil
		}
		return events.ShardDone{Run: string(d.Run), Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker, Counts: events.Counts(d.Counts)}
	case health.HolderDead, health.Disowned:
		// Sent after its holder died? Then its message is on its way.
		if !c.Due(now) && beat != nil && c.SentAt.After(beat.DueAt.Add(r.timings.FailureTimeout)) {
			return nil
		}
		lost.Reason = string(v)
		return lost
	case health.Unclaimed:
		if !c.Due(now) || waiting {
			return nil
		}
		lost.Reason = string(v)
		return lost
	}
	return nil
}

// believeDepth is for how long messages that the queue still counts are taken
// for those of unclaimed shards.
const believeDepth = 5 * time.Minute

// waiting reports whether unclaimed shards of that age may simply wait in the
// pool's queue.
func (r *Reclaimer) waiting(ctx context.Context, s run.State, age time.Duration) bool {
	d, ok := r.Queues.(queue.Depther)
	if !ok || age > believeDepth {
		return false
	}
	var m record.Manifest
	if _, found, err := host.Load(ctx, r.Docs, record.ManifestKey(s.Run), &m); err != nil || !found {
		return false
	}
	visible, hidden, err := d.Depth(ctx, host.WorkQueue(m.Pool))
	return err == nil && visible+hidden > 0
}

func anyDead(beats map[string]health.Beat, t health.Timings, now time.Time) bool {
	for _, b := range beats {
		if t.Dead(b, now) && len(b.Holds) > 0 {
			return true
		}
	}
	return false
}

func (r *Reclaimer) ring(ctx context.Context, id identity.RunID, why string) error {
	return r.Send(ctx, host.CoordinateQueue, events.Ring{Run: string(id), Reason: why})
}
