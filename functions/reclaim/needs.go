package reclaim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// reportNeeds reports the demand of the running runs to onNeed, because machines
// may have ended, or failed to start, since work was sent.
func (r *Reclaimer) reportNeeds(ctx context.Context, open []run.State, beats map[string]health.Heartbeat,
	now time.Time) error {
	var running []run.State
	for _, s := range open {
		if s.Phase == run.Running && s.Done.Set.Len() < s.Shards {
			running = append(running, s)
		}
	}
	machines, holds := r.workingMachines(beats, now)
	manifests, err := r.manifests(ctx, running)
	if err != nil {
		return err
	}
	for i, m := range manifests {
		s := running[i]
		for pool, open := range m.OpenShards(s) {
			n := scaling.Demand{OpenShards: open, LiveMachines: machines[pool], UnclaimedShards: open}
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

// manifests reads the manifests of the runs, in the same order.
func (r *Reclaimer) manifests(ctx context.Context, of []run.State) (out []record.Manifest, err error) {
	for part := range slices.Chunk(of, document.MaxKeys) {
		var keys []string
		for _, s := range part {
			keys = append(keys, record.ManifestKey(s.Run))
		}
		docs, err := r.Docs.GetMany(ctx, keys)
		if err != nil {
			return nil, fault.Wrap(err, "read the manifests of the open runs")
		}
		for _, d := range docs {
			m, err := host.DecodeManifest(d)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return out, nil
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
