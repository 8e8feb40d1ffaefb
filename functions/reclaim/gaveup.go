package reclaim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/engine/health"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// inARow is how many machines of a pool give up, while none of the pool's
// works, before its runs pause: the next would do no better, and be paid for.
const inARow = 3

// listen heeds the last words of machines on which nobody could work. The runs
// of a pool of which machine after machine gave up pause, until people have
// seen to it; it returns the others. Words that say nothing any more are
// taken back: of a pool in which a machine works since, whose runs were just told
// to pause, or that has none.
func (r *Reclaimer) listen(ctx context.Context, open []run.State, beats map[string]health.Beat) (others []run.State, err error) {
	said := lastWords(beats)
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
		words := slices.DeleteFunc(slices.Clone(said[m.Pool]), func(b health.Beat) bool { return b.At.Before(m.CreatedAt) || superseded(b, beats) })
		if len(words) < inARow {
			wanted[m.Pool] = true
			continue
		}
		if err := r.Send(ctx, host.CoordinateQueue, events.ModelMissing{Run: string(running[i].Run), Reason: inVain(words)}); err != nil {
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
			if err := r.hush(ctx, b); err != nil {
				return others, err
			}
		}
	}
	return others, nil
}

// lastWords are those of machines, by pool, the newest last.
func lastWords(beats map[string]health.Beat) map[string][]health.Beat {
	out := map[string][]health.Beat{}
	for _, b := range beats {
		if b.GaveUp != "" {
			out[b.Pool] = append(out[b.Pool], b)
		}
	}
	for _, words := range out {
		slices.SortFunc(words, func(x, y health.Beat) int { return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Worker, y.Worker)) })
	}
	return out
}

// superseded reports whether another machine of the pool has answered something
// and was there since.
func superseded(word health.Beat, beats map[string]health.Beat) bool {
	for _, b := range beats {
		if b.GaveUp == "" && b.Pool == word.Pool && b.Load.Rows > 0 && b.At.After(word.At) && machineOf(b) != machineOf(word) {
			return true
		}
	}
	return false
}

func machineOf(b health.Beat) string { return cmp.Or(b.Instance, b.Host) }

// inVain is why a run pauses.
func inVain(words []health.Beat) string {
	last := words[len(words)-1]
	return fmt.Sprintf("%d machines of the pool %s gave up one after the other, and none works; the last, %s: %s. See to it, then resume the run",
		len(words), clip(last.Pool, 64), clip(machineOf(last), 64), clip(last.GaveUp, 256))
}

// clip keeps what a machine says of itself within what an event takes.
func clip(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }

// hush takes back why a machine gave up. That it was heard of stays for a while:
// its cloud tells of its end later, and who hears of a machine that nobody knows
// takes it for one that could say nothing.
func (r *Reclaimer) hush(ctx context.Context, word health.Beat) error {
	_, err := host.Update(ctx, r.Docs, record.BeatKey(word.Worker), func(b health.Beat, found bool) (health.Beat, bool, error) {
		said := found && b.GaveUp != ""
		b.GaveUp = ""
		return b, said, nil
	})
	return fault.Wrap(err, "take back the last word of %s", word.Worker)
}

// kept is for how long a beat is kept once it is over: a machine takes up to an
// hour to give up, and a few of them count.
func kept(b health.Beat) time.Duration {
	if b.GaveUp != "" {
		return 24 * remember
	}
	return remember
}
