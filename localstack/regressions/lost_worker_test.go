package regressions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// shards returns the documents of a run's shards.
func (p *system) shards(id identity.RunID) []shard.Doc {
	p.t.Helper()
	var out []shard.Doc
	for _, raw := range p.documents("shard/") {
		var d shard.Doc
		must(p.t, json.Unmarshal(raw.Value, &d))
		if d.Run == id {
			out = append(out, d)
		}
	}
	return out
}

// errGone is the error that the stores return to a crashed process.
func errGone() error { return fault.New(fault.Unavailable, "the process is gone") }

func TestC13WorkerCrashesBetweenAnswerAndCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hooks    func(crash func()) interceptors
		requests int // in all
	}{
		"before its result is put": {func(crash func()) interceptors {
			return interceptors{put: func(string, func() error) error { crash(); return errGone() }}
		}, 20},
		"after its result is put": {func(crash func()) interceptors {
			return interceptors{put: func(_ string, apply func() error) error { _ = apply(); crash(); return errGone() }}
		}, 20},
		"in its commit": {func(crash func()) interceptors {
			return interceptors{write: func(_ string, value []byte, apply func() error) error {
				if strings.Contains(string(value), `"state":"done"`) {
					crash()
					return errGone()
				}
				return apply()
			}}
		}, 20},
		"after its commit": {func(crash func()) interceptors {
			return interceptors{write: func(_ string, value []byte, apply func() error) error {
				err := apply()
				if strings.Contains(string(value), `"state":"done"`) {
					crash()
					return errGone()
				}
				return err
			}}
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				var first atomic.Pointer[runningWorker]
				e := newRecordingEngine(after(time.Second))
				p.functions()
				id := p.upload("prompts/x.jsonl", prompts(10))
				p.await("the run is dispatched", func() bool { return p.state(id).NextShard == 1 })
				first.Store(p.work(setup{engine: e, inFlight: 16, ports: p.intercept(c.hooks(func() { first.Load().crash() }))}))
				<-first.Load().ended
				crashed := time.Now()
				p.work(setup{engine: e, inFlight: 16})
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantItems(t, 10, "")
				if got := len(e.requests()); got != c.requests {
					t.Errorf("%d requests were sent, want %d", got, c.requests)
				}
				if took := o.EndedAt.Sub(crashed); took > 12*time.Second {
					t.Errorf("the run ended %s after the crash, want at most 12s", took)
				}
			})
		})
	}
}

func TestC17DrainAtHalfKeepsAllAnswers(t *testing.T) {
	t.Parallel()
	for _, items := range []int{1, 5, 100} {
		t.Run(fmt.Sprint(items), func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[shard]\nitems = %d", items))
				half := make(chan struct{})
				var answered atomic.Int64
				e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
					a, err := after(time.Second)(ctx, r)
					if err == nil && answered.Add(1) == 10 {
						close(half)
					}
					return a, err
				})
				p.functions()
				first := p.work(setup{engine: e, inFlight: 2})
				id := p.upload("prompts/x.jsonl", prompts(20))
				<-half
				first.Drain("SIGTERM")
				first.Drain("SIGTERM again")
				<-first.ended
				must(t, first.err)
				kept := 0
				for _, d := range p.shards(id) {
					kept += d.Counts.OK
					if d.State == shard.Running || d.State == shard.Pending && d.Counts.OK > 0 && d.Checkpoint == nil {
						t.Errorf("shard %d is %+v after the drain", d.Shard, d)
					}
				}
				if kept < 10 || kept != int(answered.Load()) {
					t.Errorf("%d answers were given, %d are kept", answered.Load(), kept)
				}
				p.await("the status counts the committed answers", func() bool {
					s, err := p.user().Show(t.Context(), id)
					must(t, err)
					return int(s.Items.Done) == committed(p.shards(id))
				})
				p.work(setup{engine: e, inFlight: 2})
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantItems(t, 20, "")
				if asked := e.requests(); len(asked) != 20 {
					t.Errorf("%d requests for 20 items, want 20", len(asked))
				}
			})
		})
	}
}

// committed is the number of answers in Done shards.
func committed(ds []shard.Doc) int {
	n := 0
	for _, d := range ds {
		if d.State == shard.Done {
			n += d.Counts.OK
		}
	}
	return n
}

func TestC39LateHeartbeatLosesTheLease(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]struct {
		by     time.Duration
		fenced bool
	}{
		"by 6 s":   {6 * time.Second, true},
		"by 1.5 s": {1500 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				e := newRecordingEngine(after(5 * time.Second))
				late := newRecordingEngine(after(5500 * time.Millisecond)) // answers after the lease has expired
				var slow atomic.Bool
				var lateWrites counter
				ports := p.intercept(interceptors{write: func(key string, value []byte, apply func() error) error {
					if slow.Load() && strings.HasPrefix(key, "beat/") {
						time.Sleep(delay.by)
					}
					err := apply()
					if err == nil && strings.Contains(string(value), `"state":"done"`) {
						lateWrites.add(key)
					}
					return err
				}})
				p.functions()
				id := p.upload("prompts/x.jsonl", prompts(4))
				p.await("the run is dispatched", func() bool { return p.state(id).NextShard == 1 })
				first := p.work(setup{engine: late, ports: ports})
				p.await("the shard is claimed", func() bool { return len(late.requests()) == 4 })
				slow.Store(true)
				p.work(setup{engine: e})
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantItems(t, 4, "")
				d := p.shards(id)[0]
				if !delay.fenced {
					if d.Attempt != 1 || len(e.requests()) > 0 {
						t.Errorf("a delay within the lease lost it: attempt %d, %d requests of the other worker", d.Attempt,
							len(e.requests()))
					}
					return
				}
				<-first.ended
				if !fault.Is(first.err, fault.Fenced) {
					t.Errorf("the late worker ended with %v, want fenced", first.err)
				}
				if lateWrites.of("") > 0 || d.Attempt != 2 || d.Worker == first.id || !slices.Equal(o.Workers, []string{d.Worker}) {
					t.Errorf("the late worker wrote the shard: %+v", d)
				}
			})
		})
	}
}

func TestC43RunResumesWithAnotherNumberOfWorkers(t *testing.T) {
	t.Parallel()
	var outputs []string
	for _, c := range []struct{ before, after int }{{8, 3}, {1, 8}, {3, 1}, {0, 2}} {
		simulated(t, func(t *testing.T, p *system) {
			p.configure("[shard]\nitems = 3\n[sampling]\ntemperature = 0.8\nn = 2")
			p.functions()
			id := p.upload("prompts/x.jsonl", prompts(200))
			p.await("the run is dispatched", func() bool { return p.state(id).NextShard > 0 })
			var workers []*runningWorker
			for range c.before {
				workers = append(workers, p.work(setup{engine: newRecordingEngine(after(time.Second)), inFlight: 2}))
			}
			if c.before > 0 {
				p.await("some shards are done", func() bool { s := p.state(id); return s.Done.Frontier() > 1 })
			}
			must(t, p.user().Pause(t.Context(), id, "a pause"))
			p.await("the run is paused", func() bool { return p.state(id).Phase == run.Paused })
			for i, h := range workers { // half of them drain
				if i%2 == 0 {
					h.Drain("a notice")
					<-h.ended
				} else {
					h.kill()
				}
			}
			time.Sleep(time.Minute)
			for range c.after {
				p.work(setup{engine: newRecordingEngine(after(time.Second)), inFlight: 16})
			}
			must(t, p.user().Resume(t.Context(), id, ""))
			o := p.awaitEnd(id)
			o.wantPhase(t, "completed")
			o.wantCounts(t, 200, 0)
			outputs = append(outputs, timeless(o.out))
		})
	}
	for i, out := range outputs {
		if out != outputs[0] {
			t.Errorf("case %d has another output than case 0", i)
		}
	}
}

func TestC43FinishedRunIsNotTouchedAgain(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		e := newRecordingEngine(nil)
		stop := p.functions()
		first := p.work(setup{engine: e})
		info := p.put("prompts/x.jsonl", prompts(5))
		p.announce(info)
		id := identity.UploadRun("local", info.Key, info.Version)
		o := p.awaitEnd(id)
		first.kill()
		stop()
		if err := p.user().Resume(t.Context(), id, ""); !fault.Is(err, fault.Conflict) {
			t.Errorf("resuming a finished run: %v, want a conflict", err)
		}
		// All processes start again and the upload is announced again.
		p.functions()
		p.work(setup{engine: e})
		p.announce(info)
		p.announce(info)
		time.Sleep(2 * time.Minute)
		again := p.awaitEnd(id)
		again.wantPhase(t, "completed")
		again.wantItems(t, 5, "")
		if timeless(again.out) != timeless(o.out) || !again.EndedAt.Equal(o.EndedAt) || len(e.requests()) != 5 ||
			len(p.manifests()) != 1 {
			t.Errorf("the finished run was touched: %d requests, ended at %s and %s", len(e.requests()), o.EndedAt,
				again.EndedAt)
		}
	})
}
