package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/executors/pipeline"
	"rollout/gpuworker/pipeline/rank"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/fault"
)

func TestMain(m *testing.M) {
	if rank.Main(os.Args) {
		return
	}
	os.Exit(m.Run())
}

func newPipeline(t *testing.T, change func(c *config.Pipeline)) *pipeline.Pipeline {
	t.Helper()
	c := config.DefaultPipeline()
	if change != nil {
		change(&c)
	}
	p, err := pipeline.New(pipeline.Config{Pipeline: c, Model: config.ModelTiny, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// requests are requests of many forms.
func requests() (out []engine.Request) {
	for i := range 24 {
		const form = `{"model":"rollout/tiny","prompt":"In the beginning %d","max_tokens":%d,"temperature":%g,"seed":%d}`
		body := fmt.Sprintf(form, i, 3+i, float64(i%4)/2, i)
		out = append(out, engine.Request{Endpoint: engine.Completion, Body: []byte(body)})
	}
	for _, body := range []string{
		`{"model":"rollout/tiny","messages":[{"role":"user","content":"Who art thou?"}],"max_tokens":20}`,
		`{"model":"rollout/tiny","messages":[{"role":"user","content":"Hello ☃"}],"stop":["the"],"top_p":0.7,"top_k":40}`,
	} {
		out = append(out, engine.Request{Endpoint: engine.Chat, Body: []byte(body)})
	}
	for _, body := range []string{
		`{"model":"rollout/tiny","prompt":"And God said","stop":[" and"],"include_stop_str_in_output":true,"max_tokens":60}`,
		`{"model":"rollout/tiny","prompt":"The light","min_tokens":12,"max_tokens":30,"logit_bias":{"10":5},"seed":3}`,
		`{"model":"rollout/tiny","prompt":"The light","ignore_eos":true,"max_tokens":50,"frequency_penalty":0.5}`,
	} {
		out = append(out, engine.Request{Endpoint: engine.Completion, Body: []byte(body)})
	}
	return out
}

// ask answers all requests at once.
func ask(ctx context.Context, e engine.Engine, rs []engine.Request) ([]engine.Answer, error) {
	answers, errs := make([]engine.Answer, len(rs)), make([]error, len(rs))
	var all sync.WaitGroup
	for i, r := range rs {
		all.Go(func() { answers[i], errs[i] = e.Answer(ctx, r, func() {}) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

func TestAnswersAreThoseOfTheTinyEngine(t *testing.T) {
	t.Parallel()
	b, err := weights.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := tiny.Load(b, 1, scheduler.Config{Slots: 8, Queue: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	want, err := ask(t.Context(), whole, requests())
	if err != nil {
		t.Fatal(err)
	}
	for ranks := 1; ranks <= 2; ranks++ {
		p := newPipeline(t, func(c *config.Pipeline) { c.Ranks, c.OutputDigest = ranks, true })
		if _, err := p.Group(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := ask(t.Context(), p.Engine(), requests())
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%d ranks: %s:\n%+v\nand without a pipeline:\n%+v", ranks, requests()[i].Body, got[i], want[i])
			}
		}
	}
}

func TestLogProbabilitiesAreRefused(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, nil)
	_, err := p.Engine().Answer(t.Context(), engine.Request{Endpoint: engine.Completion,
		Body: []byte(`{"model":"rollout/tiny","prompt":"x","logprobs":2}`)}, func() {})
	if !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != fault.Refused {
		t.Errorf("logprobs: %v", err)
	}
}

// inner is an executor that asks the engine for a part of the requests.
type inner struct {
	engine  engine.Engine
	answers chan []engine.Answer
	begun   func()
}

func (x *inner) Ready(context.Context) error { return nil }

func (x *inner) Run(ctx context.Context, _ *worker.Shard) error {
	x.begun()
	a, err := ask(ctx, x.engine, requests())
	if err != nil {
		return context.Cause(ctx)
	}
	x.answers <- a
	return nil
}

func TestKilledRankEndsTheAttemptAndTheNextOneAnswers(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, nil)
	x := &inner{engine: p.Engine(), answers: make(chan []engine.Answer, 1), begun: func() {}}
	e := p.Executor(x)
	for victim := range 2 {
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		g, err := p.Group(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.begun = func() { _ = syscall.Kill(g.PIDs()[victim], syscall.SIGKILL) }
		began := time.Now()
		if err := e.Run(t.Context(), &worker.Shard{}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("the attempt ended with %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the attempt took %v to end", took)
		}
	}
	x.begun = func() {}
	if err := e.Run(t.Context(), &worker.Shard{}); err != nil {
		t.Fatal(err)
	}
	if got := <-x.answers; len(got) != len(requests()) {
		t.Errorf("%d answers", len(got))
	}
}

// TestAbandonedAttemptDoesNotDisturbAnother cancels attempts at random while another runs.
func TestAbandonedAttemptDoesNotDisturbAnother(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, nil)
	if _, err := p.Group(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err := ask(t.Context(), p.Engine(), requests())
	if err != nil {
		t.Fatal(err)
	}
	steady := &inner{engine: p.Engine(), answers: make(chan []engine.Answer, 1), begun: func() {}}
	dice := rand.New(rand.NewPCG(1, 2))
	done := make(chan error, 1)
	go func() { done <- p.Executor(steady).Run(t.Context(), &worker.Shard{}) }()
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		left := atomic.Int32{}
		left.Store(int32(dice.IntN(len(requests()))))
		e := counted{p.Engine(), func() {
			if left.Add(-1) <= 0 {
				cancel()
			}
		}}
		abandoned := &inner{engine: e, answers: make(chan []engine.Answer, 1), begun: func() {}}
		_ = p.Executor(abandoned).Run(ctx, &worker.Shard{})
		cancel()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := <-steady.answers; !reflect.DeepEqual(got, want) {
		t.Error("the other attempt has other answers than an undisturbed one")
	}
}

// counted calls a function at each answer.
type counted struct {
	engine.Engine
	answered func()
}

func (c counted) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a, err := c.Engine.Answer(ctx, r, progress)
	c.answered()
	return a, err
}

func TestLatentAnswersDependOnTheRequestAndTheRegimeAlone(t *testing.T) {
	t.Parallel()
	var all []string
	for _, recompute := range []string{config.RecomputeOff, config.RecomputeContext, config.RecomputeLatent} {
		var first []byte
		for range 2 {
			p := newPipeline(t, func(c *config.Pipeline) { c.Stage, c.Recompute, c.Ranks = config.StageLatent, recompute, 3 })
			if _, err := p.Group(t.Context()); err != nil {
				t.Fatal(err)
			}
			answers, err := ask(t.Context(), p.Engine(), requests())
			if err != nil {
				t.Fatal(err)
			}
			var text []byte
			for _, a := range answers {
				text = fmt.Appendln(text, a.Text)
				all = append(all, a.Text)
			}
			if first == nil {
				first = text
			} else if !bytes.Equal(first, text) {
				t.Errorf("recompute %s: the same requests have other answers", recompute)
			}
		}
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 3*len(requests()) {
		t.Errorf("%d different answers to %d requests in 3 regimes", n, len(requests()))
	}
}
