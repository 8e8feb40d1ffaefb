package regressions

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/engine/openai"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/fakellm"
	"rollout/shared/core/cost"
	"rollout/shared/core/ratelimit"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// runningWorker is a real worker that runs in this process.
type runningWorker struct {
	*worker.Worker
	id    string
	crash func() // ends it as if its process died: it writes nothing more
	kill  func() // crashes it and waits for its end
	ended chan struct{}
	err   error // set before ended is closed
}

// setup is the configuration of a worker. The zero value answers at once with
// the mock engine.
type setup struct {
	engine     engine.Engine
	inFlight   int
	checkpoint time.Duration
	limit      ratelimit.Amount // of the pool; it learns others from its server
	ports      *host.Ports      // the stores as it sees them; nil is the installation's ports
	price      float64          // of an hour of its machine; 0: it has none
}

// work runs a worker until the test ends or it is killed or drained.
func (p *system) work(s setup) *runningWorker {
	p.workers++
	h := &runningWorker{id: fmt.Sprintf("worker%d", p.workers), ended: make(chan struct{})}
	if s.engine == nil {
		s.engine = mock.New(mock.Config{})
	}
	if s.inFlight == 0 {
		s.inFlight = 8
	}
	if s.checkpoint == 0 {
		s.checkpoint = p.deploy.Worker.CheckpointInterval.Std()
	}
	ports := p.ports
	if s.ports != nil {
		ports = *s.ports
	}
	machine := record.Machine{}
	if s.price > 0 {
		machine.Kind = cost.Kind{Type: "machine", Class: "own"}
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	exec := infer.New(infer.Config{Engine: s.engine, Clock: ports.Clock, Log: ports.Log,
		ProgressTimeout: p.deploy.Worker.ProgressTimeout.Std(), MaxOutage: 10 * time.Second})
	h.Worker = worker.New(ports, worker.Config{ID: h.id, Pool: "default", Timings: host.Timings(p.deploy.Health),
		InFlight: s.inFlight, Limit: s.limit, LearnLimits: true,
		CheckpointInterval: s.checkpoint, Drain: p.deploy.Worker.DrainBudget.Std(),
		Grace: p.deploy.Defaults.Limits.Grace.Std(), Machine: machine, Price: s.price,
		TokenPrices: cost.TokenPrices{Prompt: p.deploy.Engine.PromptPrice, Completion: p.deploy.Engine.CompletionPrice}},
		input.NewIndex(ports.Blobs, ports.Docs), exec)
	go func() {
		defer close(h.ended)
		h.err = h.Run(ctx)
	}()
	h.crash = cancel
	h.kill = func() { cancel(); <-h.ended }
	p.t.Cleanup(h.kill)
	return h
}

// recordingEngine is an engine that answers with a function and records the
// bodies of all requests.
type recordingEngine struct {
	answer func(ctx context.Context, r engine.Request) (engine.Answer, error)
	mu     sync.Mutex
	bodies []string
}

// newRecordingEngine returns an engine that answers with the function; nil is the
// mock engine's.
func newRecordingEngine(answer func(ctx context.Context, r engine.Request) (engine.Answer, error)) *recordingEngine {
	if answer == nil {
		answer = mocked
	}
	return &recordingEngine{answer: answer}
}

// mocked answers as the mock engine does.
func mocked(ctx context.Context, r engine.Request) (engine.Answer, error) {
	return mock.New(mock.Config{}).Answer(ctx, r, func() {})
}

// Answer implements engine.Engine.
func (a *recordingEngine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a.mu.Lock()
	a.bodies = append(a.bodies, string(r.Body))
	a.mu.Unlock()
	progress()
	return a.answer(ctx, r)
}

// requests returns the bodies of all requests so far.
func (a *recordingEngine) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.bodies...)
}

// Ready implements engine.Engine.
func (a *recordingEngine) Ready(context.Context) (string, error) { return "mock", nil }

// Close implements engine.Engine.
func (a *recordingEngine) Close() error { return nil }

// after answers as the mock engine does, after a time.
func after(d time.Duration) func(ctx context.Context, r engine.Request) (engine.Answer, error) {
	return func(ctx context.Context, r engine.Request) (engine.Answer, error) {
		return mock.New(mock.Config{Delay: d}).Answer(ctx, r, func() {})
	}
}

// overHTTP is the product's client of an inference server, over a real
// connection.
func overHTTP(t *testing.T, h http.Handler) engine.Engine {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	e, err := openai.New(openai.Config{BaseURL: s.URL})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// fakeServer is an inference server that repeats prompts.
func fakeServer(t *testing.T, cfg fakellm.Config) *fakellm.Server {
	t.Helper()
	cfg.Model = "mock"
	s, err := fakellm.New(cfg)
	must(t, err)
	return s
}
