package regressions

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/gpuworker/engine"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// wantItems checks that the items id-0 to id-(n-1) have one row each under their
// own ids, in order, and that all errors have the class.
func (o outcome) wantItems(t *testing.T, n int, class string) {
	t.Helper()
	o.wantCounts(t, len(o.out), n-len(o.out))
	answers, errs := parsed[answerRow](t, o.out), parsed[errorRow](t, o.errs)
	for i := range n {
		id := fmt.Sprintf(`"id-%d"`, i)
		switch {
		case len(answers) > 0 && string(answers[0].ID) == id:
			if want := fmt.Sprintf("MOCK:number %d", i); answers[0].Completion != want {
				t.Errorf("the id %s has the answer %q", id, answers[0].Completion)
			}
			answers = answers[1:]
		case len(errs) > 0 && string(errs[0].ID) == id:
			if string(errs[0].Class) != class || errs[0].Item != uint64(i) {
				t.Errorf("the error row of %s is %+v, want the class %s and item %d", id, errs[0], class, i)
			}
			errs = errs[1:]
		default:
			t.Fatalf("%s is the next row of neither file", id)
		}
	}
	if len(answers)+len(errs) > 0 {
		t.Errorf("%d rows belong to no item", len(answers)+len(errs))
	}
}

// unevenLatency answers as the mock engine does, after 10 to 29 ms that depend on
// the number in the prompt; one prompt in eight takes 5 s.
func unevenLatency(ctx context.Context, r engine.Request) (engine.Answer, error) {
	n := 0
	_, prompt, _ := bytes.Cut(r.Body, []byte(`"prompt":"`))
	if _, err := fmt.Sscanf(string(prompt), "number %d", &n); err != nil {
		return engine.Answer{}, err
	}
	d := 10*time.Millisecond + time.Duration(7*n%20)*time.Millisecond
	if n%8 == 6 {
		d = 5 * time.Second
	}
	return after(d)(ctx, r)
}

func TestC11StopWithRequestsInFlightKeepsAnswers(t *testing.T) {
	t.Parallel()
	const races = 1000
	both := 0
	for i := range races {
		simulated(t, func(t *testing.T, p *system) {
			p.configure(fmt.Sprintf("[shard]\nitems = %d\n[limits]\ngrace = %q", []int{1, 4, 5, 25, 256}[i%5],
				[]string{"20ms", "1s"}[i%2]))
			begun := make(chan struct{}, 100)
			e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
				begun <- struct{}{}
				return unevenLatency(ctx, r)
			})
			p.functions()
			p.work(setup{engine: e, inFlight: 5})
			id := p.upload("prompts/x.jsonl", prompts(25))
			for range 5 {
				<-begun
			}
			time.Sleep(time.Duration(i) * 101 * time.Microsecond)
			must(t, p.user().Stop(t.Context(), id, ""))
			o := p.awaitEnd(id)
			o.wantPhase(t, "stopped")
			o.wantItems(t, 25, "canceled")
			if len(o.out) > 0 && len(o.errs) > 0 {
				both++
			}
		})
		if t.Failed() {
			t.Fatalf("race %d failed", i)
		}
	}
	if both < races/2 {
		t.Errorf("only %d of %d races had rows in both files, too few for the test", both, races)
	}
}

func TestC12StopBeforeTheFirstDispatch(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, p *system, e events.RunSubmitted){
		"before planning": func(*testing.T, *system, events.RunSubmitted) {},
		"planned, not cut": func(t *testing.T, p *system, e events.RunSubmitted) {
			must(t, plan.New(p.ports, plan.Options{}).Submitted(t.Context(), e))
		},
		"cut, not dispatched": func(t *testing.T, p *system, e events.RunSubmitted) {
			pl := plan.New(p.ports, plan.Options{})
			must(t, pl.Submitted(t.Context(), e))
			must(t, pl.CutRange(t.Context(), events.PlanRange{Run: e.Run}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure("[shard]\nitems = 3")
				info := p.put("prompts/x.jsonl", prompts(10))
				must(t, p.submitter().Uploaded(t.Context(), events.ObjectCreated{Bucket: "local", Key: info.Key,
					Version: info.Version, Size: info.Size}))
				m := p.manifests()[0]
				before(t, p, events.RunSubmitted{Run: string(m.Run)})
				must(t, p.user().Stop(t.Context(), m.Run, ""))
				p.functions()
				e := newRecordingEngine(nil)
				p.work(setup{engine: e})
				o := p.awaitEnd(m.Run)
				o.wantPhase(t, "stopped")
				o.wantCounts(t, 0, 10)
				o.wantItems(t, 10, "canceled")
				if n := len(e.requests()); n > 0 {
					t.Errorf("%d requests were made", n)
				}
			})
		})
	}
}

// manifests returns the manifests of all runs.
func (p *system) manifests() []record.Manifest {
	p.t.Helper()
	var out []record.Manifest
	for _, d := range p.documents("run/") {
		var m record.Manifest
		must(p.t, record.Decode(d.Value, &m, d.Key))
		out = append(out, m)
	}
	return out
}

func TestC12RunExpiresDuringPlanning(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"without workers": 0, "with one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				var m record.Manifest
				whole := strings.SplitAfter(string(prompts(12)), "\n")
				for i := range 3 {
					info := p.put(fmt.Sprintf("work/in/%d.jsonl", i), []byte(strings.Join(whole[4*i:4*i+4], "")))
					m.Inputs = append(m.Inputs, record.Input{Key: info.Key, Version: info.Version, Size: info.Size})
				}
				p.deploy.Defaults.Limits.Deadline = config.Duration(10 * time.Second)
				// The messages to plan the second file are lost until the deadline.
				began := time.Now()
				p.ports = *p.intercept(interceptors{send: func(queue string, body []byte, apply func() error) error {
					if _, e, err := events.Decode(body); err == nil && queue == host.PlanQueue && e.(events.PlanRange).Range == 1 &&
						time.Since(began) < 10*time.Second {
						return nil
					}
					return apply()
				}})
				p.functions()
				for range workers {
					p.work(setup{engine: newRecordingEngine(after(time.Second)), inFlight: 1})
				}
				id := p.create(m)
				o := p.awaitEnd(id)
				o.wantPhase(t, "expired")
				o.wantItems(t, 12, "expired")
				if got := len(o.out); got != 4*workers {
					t.Errorf("%d answers, want %d of the first file, which was planned in time", got, 4*workers)
				}
			})
		})
	}
}

func TestC14AnswersBeforeTheDeadlineAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		grace  string
		takes  time.Duration
		window string
		least  int
	}{
		{"10s", 400 * time.Millisecond, "1s", 4},
		{"100ms", 400 * time.Millisecond, "1s", 4},
		{"10s", 3 * time.Second, "1s", 4}, // answers finish only within the grace
		{"100ms", time.Minute, "1s", 0},
		{"10s", time.Millisecond, "1h", 40},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[limits]\ndeadline = %q\ngrace = %q", c.window, c.grace))
				var answered atomic.Int64
				e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
					a, err := after(c.takes)(ctx, r)
					if err == nil {
						answered.Add(1)
					}
					return a, err
				})
				p.functions()
				p.work(setup{engine: e, inFlight: 4})
				o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(40)))
				o.wantItems(t, 40, "expired")
				if len(o.out) != int(answered.Load()) || len(o.out) < c.least {
					t.Errorf("%d answers were given, %d are kept, want all and at least %d", answered.Load(), len(o.out), c.least)
				}
				if c.least == 40 {
					o.wantPhase(t, "completed")
				} else {
					o.wantPhase(t, "expired")
				}
			})
		})
	}
}

func TestC16RunEndsAfterItsSlowestRequest(t *testing.T) {
	t.Parallel()
	for _, items := range []int{1, 10, 256} {
		t.Run(fmt.Sprint(items), func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[shard]\nitems = %d", items))
				release := make(chan struct{})
				e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
					if strings.Contains(string(r.Body), "number 29") {
						<-release
					}
					return mocked(ctx, r)
				})
				p.functions()
				p.work(setup{engine: e, inFlight: 16})
				id := p.upload("prompts/x.jsonl", prompts(30))
				p.await("all requests are sent", func() bool { return len(e.requests()) == 30 })
				time.Sleep(100 * time.Second)
				if s := p.state(id); s.Phase != run.Running {
					t.Errorf("the run is %s before its last answer", s.Phase)
				}
				if _, early := p.object(record.OutputKey(id, record.CompletionsFile)); early {
					t.Error("the output exists before the last answer")
				}
				slowest := time.Now()
				close(release)
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantItems(t, 30, "")
				if o.EndedAt.Before(slowest) {
					t.Errorf("the run ended %s before its last answer", slowest.Sub(o.EndedAt))
				}
			})
		})
	}
}
