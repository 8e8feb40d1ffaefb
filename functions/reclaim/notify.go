package reclaim

import (
	"context"

	"rollout/functions/notify"
	"rollout/shared/core/health"
	"rollout/shared/core/notification"
	"rollout/shared/core/run"
)

// NotifyWith has each scan record events for people: what happens to runs, before those that
// have ended leave the index of open runs, and which machines fail. Call it before the first
// scan.
func (r *Reclaimer) NotifyWith(n *notify.Notifier) { r.notifier = n }

// notify records what there is to tell about open runs and about the pools of machines that
// failed to start a worker.
func (r *Reclaimer) notify(ctx context.Context, open []run.State, beats map[string]health.Heartbeat) error {
	if r.notifier == nil {
		return nil
	}
	if err := r.notifier.Open(ctx, open); err != nil {
		return err
	}
	var reports []notify.PoolReport
	for pool, failed := range failureReports(beats) {
		// A worker may write any heartbeat, and a pool becomes part of a key.
		if _, known := r.longestBoots[pool]; r.longestBoots != nil && !known {
			continue
		}
		last := failed[len(failed)-1]
		reports = append(reports, notify.PoolReport{Pool: pool, Problem: notification.Problem{
			Kind: notification.BootFailed, At: last.At, Reason: machineOf(last) + ": " + last.FailureReason}})
	}
	if err := r.notifier.Pools(ctx, reports); err != nil || len(open) == 0 {
		return err
	}
	return r.notifier.Fleets(ctx)
}
