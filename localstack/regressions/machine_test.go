package regressions

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

func TestC27OnlyTheShardsOfALostWorkerMove(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 2")
		p.functions()
		id := p.upload("prompts/x.jsonl", prompts(400))
		p.await("it is dispatched", func() bool { return p.state(id).NextShard == 200 })
		var workers []*runningWorker
		for range 8 {
			workers = append(workers, p.work(setup{engine: newRecordingEngine(after(3 * time.Second)), inFlight: 4}))
		}
		p.await("all workers hold shards", func() bool { return len(p.heldBy(id, "")) >= 16 })
		lost := workers[3]
		lost.kill() // without notice or release
		killed := time.Now()
		held := p.heldBy(id, lost.id)
		if len(held) == 0 {
			t.Fatal("the worker held no shard")
		}
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantItems(t, 400, "")
		var moved []int
		for _, d := range p.shards(id) {
			if d.Attempt == 1 {
				continue
			}
			moved = append(moved, d.Shard)
			if took := d.ClaimedAt.Sub(killed); d.Attempt != 2 || took > 8*time.Second {
				t.Errorf("shard %d has attempt %d, claimed %s after its holder died", d.Shard, d.Attempt, took)
			}
		}
		slices.Sort(moved)
		if !slices.Equal(moved, held) {
			t.Errorf("shards %v moved, the lost worker held %v", moved, held)
		}
	})
}

// TestFailFastEndsWithALostWorker has a run that fails fast lose a worker: one that drains
// hands its shards back, and the run goes on; one that vanishes ends it.
func TestFailFastEndsWithALostWorker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		leave         func(*runningWorker)
		phase, reason string
	}{
		{"drains", func(w *runningWorker) { w.Drain("a test") }, "completed", "done"},
		{"vanishes", func(w *runningWorker) { w.kill() }, "failed", "worker_lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure("[shard]\nitems = 4\n[limits]\nfail_fast = true")
				p.functions()
				id := p.upload("prompts/x.jsonl", prompts(40))
				w := setup{engine: newRecordingEngine(after(3 * time.Second)), inFlight: 2}
				first := p.work(w)
				p.work(w)
				p.await("both workers hold shards", func() bool {
					held := len(p.heldBy(id, first.id))
					return held > 0 && len(p.heldBy(id, "")) > held
				})
				c.leave(first)
				o := p.awaitEnd(id)
				o.wantPhase(t, c.phase)
				if o.Reason != c.reason || o.Completed+o.Failed != 40 || o.Failed != uint64(o.FailedByClass["worker_lost"]) {
					t.Errorf("it ended for %q with %d answers and %v", o.Reason, o.Completed, o.FailedByClass)
				}
			})
		})
	}
}

// heldBy returns the run's shards that a worker holds, or any worker if it is
// empty.
func (p *system) heldBy(id identity.RunID, worker string) (held []int) {
	p.t.Helper()
	for _, d := range p.shards(id) {
		if d.State == shard.Running && (worker == "" || d.Worker == worker) {
			held = append(held, d.Shard)
		}
	}
	slices.Sort(held)
	return held
}

func TestC35OnlyFailedEventsOfABatchComeBack(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		stop := p.functions()
		var ids []identity.RunID
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			ids = append(ids, p.upload("prompts/"+name+".jsonl", prompts(4)))
		}
		p.await("all are dispatched", func() bool {
			for _, id := range ids {
				if p.state(id).NextShard != 1 {
					return false
				}
			}
			return p.depth(host.CoordinateQueue) == 0
		})
		stop()
		for _, id := range ids { // ten events wait for coordinate
			must(t, p.user().Pause(t.Context(), id, "a pause"))
		}
		if n := p.depth(host.CoordinateQueue); n < 10 {
			t.Fatalf("%d events wait, want at least 10", n)
		}
		var repaired atomic.Bool
		third := record.CoordinatorKey(ids[2])
		healthy := p.ports
		p.ports = *p.intercept(interceptors{write: func(key string, _ []byte, apply func() error) error {
			if key == third && !repaired.Load() {
				return fault.New(fault.Denied, "injected: not this one")
			}
			return apply()
		}})
		p.functions()
		p.ports = healthy
		paused := func() (n int) {
			for _, id := range ids {
				if p.state(id).Phase == run.Paused {
					n++
				}
			}
			return n
		}
		p.await("the other runs are paused, and only events of the third are left", func() bool {
			left := p.depth(host.CoordinateQueue) // its pause, and the wake-up that every open run gets at the start
			return paused() == 9 && 1 <= left && left <= 2
		})
		repaired.Store(true)
		p.await("the third run is paused", func() bool { return paused() == 10 && p.depth(host.CoordinateQueue) == 0 })
	})
}

func TestC36LongCausalChainIsNotStoppedAsALoop(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 1")
		p.functions()
		p.work(setup{engine: newRecordingEngine(after(time.Second)), inFlight: 1})
		id := p.upload("prompts/x.jsonl", prompts(40))
		for range 20 { // each pause is caused by the events of the one before
			p.await("the run is running", func() bool { return p.state(id).Phase == run.Running })
			must(t, p.user().Pause(t.Context(), id, "a pause"))
			p.await("the run is paused", func() bool { return p.state(id).Phase == run.Paused })
			must(t, p.user().Resume(t.Context(), id, "its end"))
		}
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantItems(t, 40, "")
		for _, q := range []string{host.CoordinateQueue, host.TaskQueue, host.PlanQueue, host.WorkQueue("default")} {
			if n := p.depth(q + "-dead"); n > 0 {
				t.Errorf("%d dead letters in the queue of %s", n, q)
			}
		}
	})
}
