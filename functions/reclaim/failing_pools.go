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

// failuresToPause is how many machines of a pool give up, while none of the pool's
// works, before its runs pause: the next would do no better, and be paid for.
const failuresToPause = 3

// pauseFailingPools heeds the last words of machines on which nobody could work. The runs
// of a pool of which machine after machine gave up pause, until people have
// seen to it; it returns the others. Words that say nothing any more are
// taken back: of a pool in which a machine works since, whose runs were just told
// to pause, or that has none.
func (r *Reclaimer) pauseFailingPools(ctx context.Context, open []run.State, beats map[string]health.Heartbeat) (others []run.State, err error) {
	said := failureReports(beats)
	if len(said) == 0 {
		return open, nil
	}
	told := map[identity.RunID]bool{}
	var running []run.State
	for _, s := range open {
		if s.Phase == run.Running || s.Phase == run.Planning {
			running = append(running, s)
		}
	}
	manifests, err := r.manifests(ctx, running)
	if err != nil {
		return open, err
	}
	wanted := map[string]bool{} // pools that have runs which go on
	for i, m := range manifests {
		words := slices.DeleteFunc(slices.Clone(said[m.Pool]), func(b health.Heartbeat) bool { return b.At.Before(m.CreatedAt) || superseded(b, beats) })
		if len(words) < failuresToPause {
			wanted[m.Pool] = true
			continue
		}
		if err := r.Send(ctx, host.CoordinateQueue, events.ModelMissing{Run: string(running[i].Run), Reason: pauseReason(words)}); err != nil {
			return open, err
		}
		told[running[i].Run] = true
	}
	others = slices.DeleteFunc(slices.Clone(open), func(s run.State) bool { return told[s.Run] })
	for pool, words := range said {
		for _, b := range words {
			if wanted[pool] && !superseded(b, beats) {
				continue
			}
			if err := r.clearFailure(ctx, b); err != nil {
				return others, err
			}
		}
	}
	return others, nil
}

// failureReports are those of machines, by pool, the newest last.
func failureReports(beats map[string]health.Heartbeat) map[string][]health.Heartbeat {
	out := map[string][]health.Heartbeat{}
	for _, b := range beats {
		if b.FailureReason != "" {
			out[b.Pool] = append(out[b.Pool], b)
		}
	}
	for _, words := range out {
		slices.SortFunc(words, func(x, y health.Heartbeat) int {
			return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Worker, y.Worker))
		})
	}
	return out
}

// superseded reports whether another machine of the pool has answered something
// and was there since.
func superseded(word health.Heartbeat, beats map[string]health.Heartbeat) bool {
	for _, b := range beats {
		if b.FailureReason == "" && b.Pool == word.Pool && b.Load.Rows > 0 && b.At.After(word.At) && machineOf(b) != machineOf(word) {
			return true
		}
	}
	return false
}

func machineOf(b health.Heartbeat) string { return cmp.Or(b.Instance, b.Host) }

// pauseReason is why a run pauses.
func pauseReason(words []health.Heartbeat) string {
	last := words[len(words)-1]
	return fmt.Sprintf("%d machines of the pool %s gave up one after the other, and none works; the last, %s: %s. See to it, then resume the run",
		len(words), text.Truncate(last.Pool, 64, ""), text.Truncate(machineOf(last), 64, ""),
		text.Truncate(last.FailureReason, 256, ""))
}

// clearFailure takes back why a machine gave up. That it was heard of stays for a while:
// its cloud tells of its end later, and who hears of a machine that nobody knows
// takes it for one that could say nothing.
func (r *Reclaimer) clearFailure(ctx context.Context, word health.Heartbeat) error {
	_, err := host.Update(ctx, r.Docs, record.HeartbeatKey(word.Worker), func(b health.Heartbeat, found bool) (health.Heartbeat, bool, error) {
		said := found && b.FailureReason != ""
		b.FailureReason = ""
		return b, said, nil
	})
	return fault.Wrap(err, "take back the last word of %s", word.Worker)
}

// retention is for how long a beat is kept once it is over: a machine takes up to an
// hour to give up, and a few of them count.
func retention(b health.Heartbeat) time.Duration {
	if b.FailureReason != "" {
		return 24 * retainFor
	}
	return retainFor
}
