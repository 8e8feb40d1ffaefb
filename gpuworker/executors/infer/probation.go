package infer

import (
	"context"
	"errors"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// reaskAfter is how long an accused item waits for each time that the engine
// died, so that the accused of several workers do not meet at one server.
const reaskAfter = 100 * time.Millisecond

// runProbation asks the suspects, while nothing else of this worker is in flight.
func (t *execution) runProbation(ctx context.Context) {
	for trial := range t.shard.ProbationRequests(ctx) {
		if trial.Poison {
			t.quarantine(trial.Items[0])
			continue
		}
		var all sync.WaitGroup
		for _, i := range trial.Items {
			all.Go(func() {
				t.crew.with(func(h *scratch) { t.askSuspect(ctx, h, i, len(trial.Items) == 1) })
			})
		}
		all.Wait()
	}
}

// askSuspect asks one suspect's requests one after the other, until one breaks off.
func (t *execution) askSuspect(ctx context.Context, h *scratch, i int, alone bool) {
	a := t.prepare(i)
	if a == nil {
		return
	}
	if n := t.shard.Crashes(i); n > 0 && !t.pause(ctx, jitter(time.Duration(n)*reaskAfter, a.id, n)) {
		return
	}
	for k := range a.got {
		answer, err := t.ask(ctx, h, a, k, alone)
		a.take(h, k, answer, err)
		if fault.Is(err, fault.Canceled) {
			a.abandon(k + 1)
			return
		}
	}
}

// quarantine gives a poisonous item its error row. What it says is the same
// wherever it happened (I10).
func (t *execution) quarantine(i int) {
	line := t.shard.Lines[i]
	it, _ := t.parse(line)
	t.fail(i, it, line.Place, &fault.Error{Kind: fault.Corrupt, Class: fault.Poison,
		Op:     "the inference server, or its worker, died each time this item was asked alone",
		Remedy: "look into the server's log for what it dies of, then correct the item or the server and submit the item again"}, 0)
}

// recordCrash reports whether the engine died with the request; then the item is a
// suspect.
func (t *execution) recordCrash(i int, err error) bool {
	var d *engine.CrashError
	if !errors.As(err, &d) {
		return false
	}
	death := shard.Crash{Alone: d.Solo}
	if d.Start != "" {
		death.EngineStart = d.Server + " " + d.Start
	}
	t.shard.RecordCrash(i, death)
	return true
}
