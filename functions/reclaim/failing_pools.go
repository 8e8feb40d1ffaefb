package reclaim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/text"
)

// failuresToPause is how many machines of a pool fail, while none of the pool
// works, before the pool's runs pause. Further machines would fail, too, and cost
// money.
const failuresToPause = 3

// pauseFailingPools pauses the runs of pools whose machines fail one after
// another, by the failure reports that machines left in their heartbeats. It
// returns the other open runs. It clears obsolete reports: those of a pool in
// which a machine has worked since, whose runs it has just paused, or that has no
// running runs.
func (r *Reclaimer) pauseFailingPools(ctx context.Context, open []run.State,
	beats map[string]health.Heartbeat) (others []run.State, err error) {
	reports := failureReports(beats)
	if len(reports) == 0 {
		return open, nil
	}
	paused := map[identity.RunID]bool{}
	var running []identity.RunID
	for _, s := range open {
		if s.Phase == run.Running || s.Phase == run.Planning {
			running = append(running, s.Run)
		}
	}
	manifests, err := host.LoadManifests(ctx, r.Docs, running)
	if err != nil {
		return open, err
	}
	counting := map[string]bool{} // pools with running runs whose reports still count
	for i, m := range manifests {
		for _, pool := range m.Pools() {
			failed := slices.DeleteFunc(slices.Clone(reports[pool]), func(b health.Heartbeat) bool {
				return b.At.Before(m.CreatedAt) || superseded(b, beats)
			})
			if len(failed) < failuresToPause {
				counting[pool] = true
				continue
			}
			id := running[i]
			e := events.ModelMissing{Run: string(id), Reason: pauseReason(failed)}
			if err := r.Send(ctx, host.CoordinateQueue, e); err != nil {
				return open, err
			}
			if err := r.forgiveBoots(ctx, pool); err != nil {
				return open, err
			}
			paused[id] = true
		}
	}
	others = slices.DeleteFunc(slices.Clone(open), func(s run.State) bool { return paused[s.Run] })
	for pool, failed := range reports {
		for _, b := range failed {
			if counting[pool] && !superseded(b, beats) {
				continue
			}
			if err := r.clearFailure(ctx, b); err != nil {
				return others, err
			}
		}
	}
	return others, nil
}

// failureReports returns the heartbeats with a failure report, by pool, the
// newest last.
func failureReports(beats map[string]health.Heartbeat) map[string][]health.Heartbeat {
	out := map[string][]health.Heartbeat{}
	for _, b := range beats {
		if b.FailureReason != "" {
			out[b.Pool] = append(out[b.Pool], b)
		}
	}
	for _, reports := range out {
		slices.SortFunc(reports, func(x, y health.Heartbeat) int {
			return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Worker, y.Worker))
		})
	}
	return out
}

// superseded reports whether another machine of the pool has answered items and
// sent a heartbeat after the report.
func superseded(report health.Heartbeat, beats map[string]health.Heartbeat) bool {
	for _, b := range beats {
		if b.FailureReason == "" && b.Pool == report.Pool && b.Load.Rows > 0 && b.At.After(report.At) &&
			machineOf(b) != machineOf(report) {
			return true
		}
	}
	return false
}

func machineOf(b health.Heartbeat) string { return cmp.Or(b.Instance, b.Host) }

// pauseReason is the reason, for people, why a run pauses.
func pauseReason(reports []health.Heartbeat) string {
	last := reports[len(reports)-1]
	return fmt.Sprintf("%d machines of the pool %s failed one after the other, and none works; the last, %s: %s. "+
		"Remove the cause, then resume the run",
		len(reports), text.Truncate(last.Pool, 64, ""), text.Truncate(machineOf(last), 64, ""),
		text.Truncate(last.FailureReason, 256, ""))
}

// clearFailure clears the failure report of a heartbeat, and keeps the heartbeat:
// the cloud reports the machine's end later, and package interrupt would record a
// machine without a heartbeat as failed.
func (r *Reclaimer) clearFailure(ctx context.Context, report health.Heartbeat) error {
	change := func(b health.Heartbeat, found bool) (health.Heartbeat, bool, error) {
		changed := found && b.FailureReason != ""
		b.FailureReason = ""
		return b, changed, nil
	}
	_, err := host.Update(ctx, r.Docs, record.HeartbeatKey(report.Worker), change)
	return fault.Wrap(err, "clear the failure report of %s", report.Worker)
}

// retention is how long a heartbeat is kept after it was due. Failure reports are
// kept longer: a machine takes up to an hour to fail, and several count together.
func retention(b health.Heartbeat) time.Duration {
	if b.FailureReason != "" {
		return 24 * retainFor
	}
	return retainFor
}
