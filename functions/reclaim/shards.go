package reclaim

import (
	"context"
	"encoding/json"
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

// maxPerScan bounds how many shards of one chunk a scan looks at.
const maxPerScan = 1000

// lookEvery is how often the shards of chunks that are old enough are looked
// at, while nobody dies.
const lookEvery = time.Second

// chunks looks at a run's dispatched shards: at all of them after a death, and
// now and then at those that were sent long ago.
func (r *Reclaimer) chunks(ctx context.Context, s run.State, beats map[string]health.Heartbeat, now time.Time) error {
	death := r.freshDeath(beats, now)
	look := now.Sub(r.checkedAt[s.Run]) >= lookEvery
	if !death && !look {
		return nil
	}
	held := r.held(s, beats, now)
	for _, c := range s.InFlight.Chunks {
		if !death && !r.due(c, now) {
			continue
		}
		if err := r.chunk(ctx, s, c, held, beats, now); err != nil {
			return err
		}
	}
	r.checkedAt[s.Run] = now
	return nil
}

// due reports whether the chunk is old enough to look at. One that was sent
// later than now was sent before the clock was set back: nobody knows when.
func (r *Reclaimer) due(c schedule.Chunk, now time.Time) bool {
	return c.Due(now) || r.ahead(c.SentAt, now)
}

// held are the run's shards that living workers list.
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

// chunk looks at the dispatched shards of a chunk that no living worker
// lists. A shard of a dead holder is lost at once; one that nobody claimed
// only when its chunk is old enough for its message to be lost.
func (r *Reclaimer) chunk(ctx context.Context, s run.State, c schedule.Chunk, held map[int]bool, beats map[string]health.Heartbeat, now time.Time) error {
	var keys []string
	var shards []int
	for n := c.Lo; n < c.Hi && len(keys) < maxPerScan; n++ {
		if !held[n] {
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
	waiting := !r.ahead(c.SentAt, now) && r.waiting(ctx, s, now.Sub(c.SentAt))
	var out []events.Payload
	for i, raw := range docs {
		d := shard.New(s.Run, shards[i])
		if raw.Revision != "" {
			if err := json.Unmarshal(raw.Value, &d); err != nil {
				return fault.WithKind(fault.Corrupt, err, "decode document %s", raw.Key)
			}
		}
		if p := r.judge(d, c, beats, waiting, now); p != nil {
			out = append(out, p)
		}
	}
	return r.Send(ctx, host.CoordinateQueue, out...)
}

// judge turns the verdict on one shard into a report, or nil.
func (r *Reclaimer) judge(d shard.Doc, c schedule.Chunk, beats map[string]health.Heartbeat, waiting bool, now time.Time) events.Payload {
	var beat *health.Heartbeat
	if b, ok := beats[d.Worker]; ok {
		beat = &b
	}
	lost := events.ShardLost{Run: string(d.Run), Shard: d.Shard, Generation: c.Generation, Worker: d.Worker}
	switch v := r.timings.Judge(d, beat, now); v {
	case health.Finished:
		// Who committed says so himself, if he lives.
		if !r.due(c, now) && beat != nil && !r.timings.Dead(*beat, now) {
			return nil
		}
		return events.ShardDone{Run: string(d.Run), Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker, Counts: events.Counts(d.Counts)}
	case health.HolderDead, health.NotListed:
		// Sent after its holder died? Then its message is on its way.
		if !r.due(c, now) && beat != nil && c.SentAt.After(beat.DueAt.Add(r.timings.FailureTimeout)) {
			return nil
		}
		lost.Reason = string(v)
		return lost
	case health.Unclaimed:
		if !r.due(c, now) || waiting {
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
// pool's queues.
func (r *Reclaimer) waiting(ctx context.Context, s run.State, age time.Duration) bool {
	d, ok := r.Queues.(queue.Depther)
	if !ok || age > believeDepth {
		return false
	}
	m, err := host.LoadManifest(ctx, r.Docs, s.Run)
	if err != nil {
		return false
	}
	for _, q := range []string{host.UrgentQueue(m.Pool), host.WorkQueue(m.Pool)} {
		if visible, hidden, err := d.Depth(ctx, q); err == nil && visible+hidden > 0 {
			return true
		}
	}
	return false
}

// freshDeath reports whether a worker that held shards died so short a time
// ago that its shards may not have been found yet.
func (r *Reclaimer) freshDeath(beats map[string]health.Heartbeat, now time.Time) bool {
	for _, b := range beats {
		if len(b.Holds) > 0 && r.timings.Dead(b, now) && now.Sub(b.DueAt) < 2*r.timings.FailureTimeout+lookEvery {
			return true
		}
	}
	return false
}
