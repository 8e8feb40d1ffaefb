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

// shards are the documents of a run's shards.
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

// gone is what a process that just died gets from its stores.
func gone() error { return fault.New(fault.Unavailable, "the process is gone") }

func TestC13AWorkerDiesBetweenAnswerAndCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dies func(die func()) interceptors
		asks int // requests in all
	}{
		"before its result is put": {func(die func()) interceptors {
			return interceptors{put: func(string, func() error) error { die(); return gone() }}
		}, 20},
		"after its result is put": {func(die func()) interceptors {
			return interceptors{put: func(_ string, apply func() error) error { _ = apply(); die(); return gone() }}
		}, 20},
		"in its commit": {func(die func()) interceptors {
			return interceptors{write: func(_ string, value []byte, apply func() error) error {
				if strings.Contains(string(value), `"state":"done"`) {
					die()
					return gone()
				}
				return apply()
			}}
		}, 20},
		"after its commit": {func(die func()) interceptors {
			return interceptors{write: func(_ string, value []byte, apply func() error) error {
				err := apply()
				if strings.Contains(string(value), `"state":"done"`) {
					die()
					return gone()
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
				p.await("it is dispatched", func() bool { return p.state(id).NextShard == 1 })
				first.Store(p.work(setup{engine: e, inFlight: 16, ports: p.intercept(c.dies(func() { first.Load().crash() }))}))
				<-first.Load().ended
				died := time.Now()
				p.work(setup{engine: e, inFlight: 16})
				o := p.ended(id)
				o.phase(t, "completed")
				o.own(t, 10, "")
				if got := len(e.requests()); got != c.asks {
					t.Errorf("%d requests were made, want %d", got, c.asks)
				}
				if took := o.EndedAt.Sub(died); took > 12*time.Second {
					t.Errorf("it took %s to go on", took)
				}
			})
		})
	}
}

func TestC17ADrainAtHalfLosesNothing(t *testing.T) {
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
						t.Errorf("shard %d is left as %+v", d.Shard, d)
					}
				}
				if kept < 10 || kept != int(answered.Load()) {
					t.Errorf("%d answers were given and %d are kept", answered.Load(), kept)
				}
				p.await("users see what is committed", func() bool {
					s, err := p.user().Show(t.Context(), id)
					must(t, err)
					return int(s.Items.Done) == committed(p.shards(id))
				})
				p.work(setup{engine: e, inFlight: 2})
				o := p.ended(id)
				o.phase(t, "completed")
				o.own(t, 20, "")
				if asked := e.requests(); len(asked) != 20 {
					t.Errorf("%d requests for 20 items", len(asked))
				}
			})
		})
	}
}

func committed(ds []shard.Doc) int {
	n := 0
	for _, d := range ds {
		if d.State == shard.Done {
			n += d.Counts.OK
		}
	}
	return n
}

func TestC39ALeaseRenewedTooLateIsLost(t *testing.T) {
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
				late := newRecordingEngine(after(5500 * time.Millisecond)) // the late one's answers come after its lease is over
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
				p.await("it is dispatched", func() bool { return p.state(id).NextShard == 1 })
				first := p.work(setup{engine: late, ports: ports})
				p.await("it is claimed", func() bool { return len(late.requests()) == 4 })
				slow.Store(true)
				p.work(setup{engine: e})
				o := p.ended(id)
				o.phase(t, "completed")
				o.own(t, 4, "")
				d := p.shards(id)[0]
				if !delay.fenced {
					if d.Attempt != 1 || len(e.requests()) > 0 {
						t.Errorf("a delay within the lease cost it: attempt %d, %d requests elsewhere", d.Attempt, len(e.requests()))
					}
					return
				}
				<-first.ended
				if !fault.Is(first.err, fault.Fenced) {
					t.Errorf("the late worker ended with %v, want fenced", first.err)
				}
				if lateWrites.of("") > 0 || d.Attempt != 2 || d.Worker == first.id || !slices.Equal(o.Workers, []string{d.Worker}) {
					t.Errorf("the late worker's write won: %+v", d)
				}
			})
		})
	}
}

func TestC43ARunGoesOnWithAnyNumberOfWorkers(t *testing.T) {
	t.Parallel()
	var outputs []string
	for _, c := range []struct{ before, after int }{{8, 3}, {1, 8}, {3, 1}, {0, 2}} {
		simulated(t, func(t *testing.T, p *system) {
			p.configure("[shard]\nitems = 3\n[sampling]\ntemperature = 0.8\nn = 2")
			p.functions()
			id := p.upload("prompts/x.jsonl", prompts(200))
			p.await("it is dispatched", func() bool { return p.state(id).NextShard > 0 })
			var hands []*runningWorker
			for range c.before {
				hands = append(hands, p.work(setup{engine: newRecordingEngine(after(time.Second)), inFlight: 2}))
			}
			if c.before > 0 {
				p.await("some is done", func() bool { s := p.state(id); return s.Done.Frontier() > 1 })
			}
			must(t, p.user().Pause(t.Context(), id, "for the night"))
			p.await("it is paused", func() bool { return p.state(id).Phase == run.Paused })
			for i, h := range hands { // half of them leave in order
				if i%2 == 0 {
					h.Drain("the night")
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
			o := p.ended(id)
			o.phase(t, "completed")
			o.counts(t, 200, 0)
			outputs = append(outputs, timeless(o.out))
		})
	}
	for i, out := range outputs {
		if out != outputs[0] {
			t.Errorf("the output depends on the number of workers: case %d", i)
		}
	}
}

func TestC43AFinishedRunHasNothingLeft(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		e := newRecordingEngine(nil)
		stop := p.functions()
		first := p.work(setup{engine: e})
		info := p.put("prompts/x.jsonl", prompts(5))
		p.announce(info)
		id := identity.UploadRun("local", info.Key, info.Version)
		o := p.ended(id)
		first.kill()
		stop()
		if err := p.user().Resume(t.Context(), id, ""); !fault.Is(err, fault.Conflict) {
			t.Errorf("resuming a finished run: %v", err)
		}
		// Everything starts again and hears of the upload once more.
		p.functions()
		p.work(setup{engine: e})
		p.announce(info)
		p.announce(info)
		time.Sleep(2 * time.Minute)
		again := p.ended(id)
		again.phase(t, "completed")
		again.own(t, 5, "")
		if timeless(again.out) != timeless(o.out) || !again.EndedAt.Equal(o.EndedAt) || len(e.requests()) != 5 || len(p.manifests()) != 1 {
			t.Errorf("the finished run was touched: %d requests, ended %s and %s", len(e.requests()), o.EndedAt, again.EndedAt)
		}
	})
}
