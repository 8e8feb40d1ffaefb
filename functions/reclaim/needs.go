package reclaim

import (
	"cmp"
	"context"
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
)

// reportNeeds reports the demand of the running runs to onNeed, because machines
// may have ended, or failed to start, since work was sent.
func (r *Reclaimer) reportNeeds(ctx context.Context, open []run.State, beats map[string]health.Heartbeat,
	now time.Time) error {
	var running []run.State
	var ids []identity.RunID
	for _, s := range open {
		if s.Phase == run.Running && s.Done.Set.Len() < s.Shards {
			running, ids = append(running, s), append(ids, s.Run)
		}
	}
	machines, holds := r.workingMachines(beats, now)
	spent := r.heldCost(running, beats, now)
	manifests, err := host.LoadManifests(ctx, r.Docs, ids)
	if err != nil {
		return err
	}
	for i, m := range manifests {
		s := running[i]
		for pool, n := range m.Demands(s, spent[s.Run]) {
			n.LiveMachines = machines[pool]
			for _, shard := range holds[heldBy{s.Run, pool}] {
				if !s.Done.Set.Has(shard) {
					n.UnclaimedShards--
				}
			}
			r.onNeed(pool, n)
		}
	}
	return nil
}

// heldCost returns what the shards that living workers hold have cost of each run so far, in
// millionths of a dollar.
func (r *Reclaimer) heldCost(running []run.State, beats map[string]health.Heartbeat,
	now time.Time) map[identity.RunID]int64 {
	states := map[identity.RunID]run.State{}
	for _, s := range running {
		states[s.Run] = s
	}
	spent := map[identity.RunID]int64{}
	for _, b := range beats {
		if r.timings.Dead(b, now) {
			continue
		}
		for _, h := range b.Holds {
			if s, open := states[h.Run]; open && !s.Done.Set.Has(h.Shard) {
				spent[h.Run] = cost.Sum(spent[h.Run], cost.Micros(cost.Sum(h.TokenNanoUSD, h.Machine.NanoUSD)))
			}
		}
	}
	return spent
}

// heldBy is a run whose shards workers of a pool hold.
type heldBy struct {
	run  identity.RunID
	pool string
}

// workingMachines counts the machines, by pool, whose workers are alive and not
// draining. It lists the shards that these workers hold.
func (r *Reclaimer) workingMachines(beats map[string]health.Heartbeat,
	now time.Time) (machines map[string]int, holds map[heldBy][]int) {
	machines, holds = map[string]int{}, map[heldBy][]int{}
	type machine struct{ pool, name string }
	seen := map[machine]bool{}
	for _, b := range beats {
		if b.State == health.Draining || r.timings.Dead(b, now) {
			continue
		}
		if m := (machine{b.Pool, cmp.Or(b.Instance, b.Host)}); !seen[m] {
			seen[m] = true
			machines[b.Pool]++
		}
		for _, h := range b.Holds {
			of := heldBy{h.Run, b.Pool}
			holds[of] = append(holds[of], h.Shard)
		}
	}
	return machines, holds
}
