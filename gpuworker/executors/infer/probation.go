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

// waitPerCrash is how long a suspect waits for each crash on it, so that the
// suspects of several workers do not meet at one server.
const waitPerCrash = 100 * time.Millisecond

// runProbation asks the suspects while nothing else of this worker is in flight.
func (t *execution) runProbation(ctx context.Context) {
	for p := range t.shard.ProbationRequests(ctx) {
		if p.Poison {
			t.quarantine(p.Items[0])
			continue
		}
		var all sync.WaitGroup
		for _, i := range p.Items {
			all.Go(func() {
				t.requesters.withScratch(func(sc *scratch) { t.askSuspect(ctx, sc, i, len(p.Items) == 1) })
			})
		}
		all.Wait()
		t.grades.wait() // what has no row would be asked again
	}
}

// askSuspect makes one suspect's requests one after the other, until one is cut
// off. Exclusive says that it is the only item of the probation request.
func (t *execution) askSuspect(ctx context.Context, sc *scratch, i int, exclusive bool) {
	a := t.prepare(i)
	if a == nil {
		return
	}
	if n := t.shard.Crashes(i); n > 0 && !t.pause(ctx, jitter(time.Duration(n)*waitPerCrash, a.id, n)) {
		return
	}
	for k := range a.got {
		permit, ok := t.shard.AcquirePermit(ctx, a.cost)
		if !ok {
			a.abandon(k)
			return
		}
		answer, err := t.ask(ctx, sc, a, k, permit, exclusive)
		a.add(sc, k, answer, err)
		if fault.Is(err, fault.Canceled) {
			a.abandon(k + 1)
			return
		}
	}
}

// quarantine gives a poison item its error row. The text is the same whatever
// worker writes it (I10).
func (t *execution) quarantine(i int) {
	line := t.shard.Lines[i]
	it, _ := t.parse(line)
	t.fail(i, it, line.Place, &fault.Error{Kind: fault.Corrupt, Class: fault.Poison,
		Op:     "the inference server or its worker crashed each time this item was asked alone",
		Remedy: "find the crash in the server's log, correct the item or the server, then submit the item again"}, 0)
}

// recordCrash reports whether err says that the engine crashed during the
// request. Then the item becomes a suspect.
func (t *execution) recordCrash(i int, err error) bool {
	var c *engine.CrashError
	if !errors.As(err, &c) {
		return false
	}
	crash := shard.Crash{Alone: c.Solo}
	if c.Start != "" {
		crash.EngineStart = c.Server + " " + c.Start
	}
	t.shard.RecordCrash(i, crash)
	return true
}
