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
	"rollout/shared/host"
	"rollout/shared/input"
)

// runningWorker is a worker of the product.
type runningWorker struct {
	*worker.Worker
	id    string
	crash func() // as if its process died: nothing more is written
	kill  func() // die, and wait until it is gone
	ended chan struct{}
	err   error // once gone
}

// setup says what a worker is like. The zero value answers at once, like the
// mock engine.
type setup struct {
	engine     engine.Engine
	inFlight   int
	checkpoint time.Duration
	ports      *host.Ports // through which it sees the stores; the product's if nil
}

// work starts a worker, until the test ends or it is killed or drained.
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
	ctx, cancel := context.WithCancel(p.t.Context())
	exec := infer.New(infer.Config{Engine: s.engine, Clock: ports.Clock, Log: ports.Log,
		ProgressTimeout: p.deploy.Worker.ProgressTimeout.Std(), MaxOutage: 10 * time.Second})
	h.Worker = worker.New(ports, worker.Config{ID: h.id, Pool: "default", Timings: host.Timings(p.deploy.Health), InFlight: s.inFlight,
		CheckpointInterval: s.checkpoint, Drain: p.deploy.Worker.DrainBudget.Std(), Grace: p.deploy.Defaults.Limits.Grace.Std()},
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

// recordingEngine is an engine whose answers a function makes. It remembers the bodies
// of all requests.
type recordingEngine struct {
	answer func(ctx context.Context, r engine.Request) (engine.Answer, error)
	mu     sync.Mutex
	bodies []string
}

// newRecordingEngine returns an engine that answers so; nil is like the mock.
func newRecordingEngine(answer func(ctx context.Context, r engine.Request) (engine.Answer, error)) *recordingEngine {
	if answer == nil {
		answer = mocked
	}
	return &recordingEngine{answer: answer}
}

// mocked is the mock engine's answer.
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

// requests are the bodies of all requests so far.
func (a *recordingEngine) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.bodies...)
}

// Ready implements engine.Engine.
func (a *recordingEngine) Ready(context.Context) (string, error) { return "mock", nil }

// Close implements engine.Engine.
func (a *recordingEngine) Close() error { return nil }

// after answers like the mock, but only after that time.
func after(d time.Duration) func(ctx context.Context, r engine.Request) (engine.Answer, error) {
	return func(ctx context.Context, r engine.Request) (engine.Answer, error) {
		return mock.New(mock.Config{Delay: d}).Answer(ctx, r, func() {})
	}
}

// overHTTP is an engine that asks an inference server, as products do.
func overHTTP(t *testing.T, h http.Handler) engine.Engine {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	e, err := openai.New(openai.Config{BaseURL: s.URL})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// fakeServer is a server that repeats prompts.
func fakeServer(t *testing.T, cfg fakellm.Config) *fakellm.Server {
	t.Helper()
	cfg.Model = "mock"
	s, err := fakellm.New(cfg)
	must(t, err)
	return s
}
