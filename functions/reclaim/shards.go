package reclaim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// maxPerScan bounds the shards of one chunk that a scan reads.
const maxPerScan = 1000

// checkEvery is how often the shards of old chunks are read while no worker dies.
const checkEvery = time.Second

// chunks checks a run's dispatched shards: all of them after a worker's death,
// and otherwise every checkEvery those of chunks that were sent long ago.
func (r *Reclaimer) chunks(ctx context.Context, s run.State, beats map[string]health.Heartbeat, now time.Time) error {
	death := r.freshDeath(beats, now)
	check := now.Sub(r.checkedAt[s.Run]) >= checkEvery
	if !death && !check {
		return nil
	}
	l := look{beats: beats, held: r.held(s, beats, now), now: now}
	var failed error
	for _, c := range s.InFlight.Chunks {
		if !death && !r.due(c, now) {
			continue
		}
		switch err := r.chunk(ctx, s, c, l); fault.KindOf(err) {
		case fault.Invalid, fault.Corrupt: // of one shard
			failed = errors.Join(failed, err)
		default:
			if err != nil {
				return errors.Join(failed, err)
			}
		}
	}
	r.checkedAt[s.Run] = now
	return failed
}

// look is what a scan knows when it checks the shards of a run.
type look struct {
	beats map[string]health.Heartbeat // by worker
	held  map[int]bool                // the run's shards that living workers list
	now   time.Time
}

// due reports whether the chunk is old enough to be checked. A chunk that was sent
// in the future was sent before the clock was set back, at an unknown time.
func (r *Reclaimer) due(c schedule.Chunk, now time.Time) bool {
	return c.Due(now) || r.ahead(c.SentAt, now)
}

// held returns the run's shards that living workers list in their heartbeats.
func (r *Reclaimer) held(s run.State, beats map[string]health.Heartbeat, now time.Time) map[int]bool {
	out := map[int]bool{}
	for _, b := range beats {
		if r.timings.Dead(b, now) {
			continue
		}
		for _, h := range b.Holds {
			if h.Run == s.Run {
				out[h.Shard] = true
			}
		}
	}
	return out
}

// chunk checks the dispatched shards of a chunk that no living worker lists. A
// shard of a dead holder is lost at once. An unclaimed shard is lost once its
// chunk is so old that its message must be lost.
func (r *Reclaimer) chunk(ctx context.Context, s run.State, c schedule.Chunk, l look) error {
	var keys []string
	var shards []int
	for n := c.Lo; n < c.Hi && len(keys) < maxPerScan; n++ {
		if !l.held[n] {
			keys = append(keys, identity.ShardKey(s.Run, n))
			shards = append(shards, n)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	docs, err := r.Docs.GetMany(ctx, keys)
	if err != nil {
		return err
	}
	waiting := func(int) bool { return false }
	if !r.ahead(c.SentAt, l.now) {
		waiting = r.waiting(ctx, s, l.now.Sub(c.SentAt))
	}
	var out []events.Payload
	var failed error
	for i, raw := range docs {
		d := shard.New(s.Run, shards[i])
		if raw.Revision != "" {
			if err := json.Unmarshal(raw.Value, &d); err != nil {
				failed = errors.Join(failed, fault.WithKind(fault.Corrupt, err, "decode document %s", raw.Key))
				continue
			}
		}
		if p := r.judge(d, c, l, waiting(d.Shard)); p != nil {
			out = append(out, p)
		}
	}
	return errors.Join(failed, r.report(ctx, out))
}

// report sends reports to coordinate. One that is not valid, of a damaged document, does not
// hold up the others.
func (r *Reclaimer) report(ctx context.Context, reports []events.Payload) error {
	err := r.Send(ctx, host.CoordinateQueue, reports...)
	if len(reports) < 2 || !fault.Is(err, fault.Invalid) {
		return err
	}
	var failed error
	for _, p := range reports {
		err := r.Send(ctx, host.CoordinateQueue, p)
		failed = errors.Join(failed, err)
		if err != nil && !fault.Is(err, fault.Invalid) {
			return failed
		}
	}
	return failed
}

// judge returns the report on one shard, or nil. waiting says that the shard's
// message may still be in its queue.
func (r *Reclaimer) judge(d shard.Doc, c schedule.Chunk, l look, waiting bool) events.Payload {
	var beat *health.Heartbeat
	if b, ok := l.beats[d.Worker]; ok {
		beat = &b
	}
	due := r.due(c, l.now)
	lost := events.ShardLost{Run: string(d.Run), Shard: d.Shard, Generation: c.Generation, Worker: d.Worker}
	switch v := r.timings.Judge(d, beat, l.now); v {
	case health.Finished:
		// A living worker reports its own commit.
		if !due && beat != nil && !r.timings.Dead(*beat, l.now) {
			return nil
		}
		return events.ShardDone{Run: string(d.Run), Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker,
			Counts: host.EventCounts(d.Counts)}
	case health.HolderDead, health.NotListed:
		// A message that was sent after the holder died is still on its way.
		if !due && beat != nil && c.SentAt.After(beat.DueAt.Add(r.timings.FailureTimeout)) {
			return nil
		}
		lost.Reason = string(v)
		return lost
	case health.Unclaimed:
		if !due || waiting {
			return nil
		}
		lost.Reason = string(v)
		return lost
	}
	return nil
}

// believeDepth is how long after a shard was sent a message in the pool's queues
// may be the shard's.
const believeDepth = 5 * time.Minute

// waiting returns a function that reports whether the message of an unclaimed
// shard, sent that long ago, may still be in the queues of its role's pool.
func (r *Reclaimer) waiting(ctx context.Context, s run.State, age time.Duration) func(shard int) bool {
	d, ok := r.Queues.(queue.Depther)
	if !ok || age > believeDepth {
		return func(int) bool { return false }
	}
	m, err := host.LoadManifest(ctx, r.Docs, s.Run)
	if err != nil {
		return func(int) bool { return false }
	}
	waits := map[string]bool{}
	for _, pool := range m.Pools() {
		for _, q := range []string{host.UrgentQueue(pool), host.WorkQueue(pool)} {
			if visible, hidden, err := d.Depth(ctx, q); err == nil && visible+hidden > 0 {
				waits[pool] = true
				break
			}
		}
	}
	return func(shard int) bool {
		number, err := r.index.RoleOf(ctx, m, shard)
		if err != nil {
			return false
		}
		role, err := m.Role(number)
		return err == nil && waits[role.Pool]
	}
}

// freshDeath reports whether a worker that held shards died so recently that no
// scan may have found its shards yet.
func (r *Reclaimer) freshDeath(beats map[string]health.Heartbeat, now time.Time) bool {
	for _, b := range beats {
		if len(b.Holds) > 0 && r.timings.Dead(b, now) && now.Sub(b.DueAt) < 2*r.timings.FailureTimeout+checkEvery {
			return true
		}
	}
	return false
}
