package reclaim

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

// longestBootReason bounds the reason of a failed boot in fleet/<pool>, in bytes.
const longestBootReason = 256

// countBoots counts, in fleet/<pool>, the machines that ended before they answered anything,
// and forgets them once a machine that started later answers. The autoscaler waits longer from
// one failed boot to the next.
//
// Workers write heartbeats, and what they say is not trusted: one that names no pool with
// machines, or a time that is still to come, is passed over.
func (r *Reclaimer) countBoots(ctx context.Context, beats map[string]health.Heartbeat, now time.Time) error {
	if r.bootPause == 0 {
		return nil
	}
	pools := map[string][]health.Heartbeat{}
	latest := now.Add(r.timings.SkewBudget)
	for _, b := range beats {
		if _, known := r.longestBoots[b.Pool]; !known || b.At.After(latest) || b.Started.After(latest) {
			continue
		}
		if bootFailure(b) != "" || b.Load.Rows > 0 && b.Instance != "" {
			pools[b.Pool] = append(pools[b.Pool], b)
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		of := pools[pool]
		slices.SortFunc(of, func(x, y health.Heartbeat) int {
			return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Worker, y.Worker))
		})
		if err := r.updateBoots(ctx, pool, func(b scaling.Boots) (scaling.Boots, bool) {
			return afterBoots(b, of, r.bootPause, r.longestBoots[pool])
		}); err != nil {
			return err
		}
	}
	return nil
}

// afterBoots returns the boots of a pool by heartbeats of it in the order of their times, and
// whether they change.
func afterBoots(b scaling.Boots, beats []health.Heartbeat,
	pause, longest time.Duration) (_ scaling.Boots, changed bool) {
	for _, of := range beats {
		var now bool
		if why := bootFailure(of); why != "" {
			why = text.Truncate(machineOf(of)+": "+why, longestBootReason, "…")
			b, now = b.Failed(of.At.UTC(), why, pause, longest)
		} else {
			b, now = b.Answered(of.Started)
		}
		changed = changed || now
	}
	return b, changed
}

// bootFailure returns why the machine of a report ended before it answered anything; "" for the
// heartbeat of a worker.
func bootFailure(b health.Heartbeat) string {
	switch {
	case b.FailureReason != "":
		return b.FailureReason
	case b.TakenBack != "":
		return "the provider took it back before it answered anything: " + b.TakenBack
	}
	return ""
}

// updateBoots changes the boots of a pool. A deployment without machines may not note them, and
// asks for none.
func (r *Reclaimer) updateBoots(ctx context.Context, pool string,
	change func(scaling.Boots) (scaling.Boots, bool)) error {
	_, err := host.Update(ctx, r.Docs, record.FleetKey(pool), func(f record.Fleet, _ bool) (record.Fleet, bool, error) {
		var changed bool
		f.Boots, changed = change(f.Boots)
		f.Schema = record.Schema
		return f, changed, nil
	})
	if fault.Is(err, fault.Denied) {
		r.Log.InfoContext(ctx, "the boots of the pool can't be noted", observe.KeyPool, pool, observe.KeyError, err)
		return nil
	}
	return fault.Wrap(err, "count the boots of pool %s", pool)
}

// forgiveBoots forgets the failed boots of a pool whose runs have just paused: when people
// resume them, a machine is asked for at once.
func (r *Reclaimer) forgiveBoots(ctx context.Context, pool string) error {
	if _, known := r.longestBoots[pool]; r.bootPause == 0 || !known {
		return nil
	}
	return r.updateBoots(ctx, pool, func(b scaling.Boots) (scaling.Boots, bool) { return b.Forgiven(), b.Failures > 0 })
}
