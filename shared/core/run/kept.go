package run

import (
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
)

// maxKeptRanges bounds the ranges of done shards from which on no further kept shard
// is passed: a run's document stays small however its kept shards are scattered.
const maxKeptRanges = 256

// sendTouched is dispatch of a child run that skips no shard: see Scan.Pick for others.
// Shards that it keeps from its parent are done as soon as all before them are sent or
// done; the others are sent up to the window. It stops where the caller has not looked:
// the next step goes on there.
func (d *decider) sendTouched() {
	kept, known := d.world.Kept, min(d.Shards, d.world.KeptUntil)
	for d.NextShard < known {
		n := d.NextShard
		for len(kept) > 0 && kept[0].Hi <= n {
			kept = kept[1:]
		}
		done := &d.State.Done.Set
		if len(kept) > 0 && kept[0].Lo <= n {
			if len(done.Ranges()) >= maxKeptRanges && !done.Has(n-1) {
				return
			}
			d.NextShard = min(kept[0].Hi, known)
			done.AddRange(interval.Range{Lo: n, Hi: d.NextShard})
			d.KeptShards += d.NextShard - n
			continue
		}
		hi := known
		if len(kept) > 0 {
			hi = min(hi, kept[0].Lo)
		}
		window := d.inFlightLimit(d.share(schedule.Window(d.world.Pool, 0, len(done.Ranges()))))
		d.sendNew(interval.Range{Lo: n, Hi: min(hi, n+window-d.InFlight.Len())})
		if d.NextShard == n {
			return
		}
	}
}
