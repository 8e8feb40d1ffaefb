package infer_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// scripted is an engine that follows a script: each request of a prompt takes the
// prompt's next step. Without a step, or if the step returns nil, it answers as
// the mock does.
type scripted struct {
	script map[string][]step // by a part of the body
	ready  func() error

	mu       sync.Mutex
	requests []request
	taken    map[string]int // steps
}

type step func(ctx context.Context, progress func()) error

type request struct {
	at        time.Time
	body      string
	streamed  bool // it must be
	maxTokens int64
	model     string
}

func (s *scripted) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	s.mu.Lock()
	s.requests = append(s.requests, request{time.Now(), string(r.Body), r.Streamed, r.MaxTokens, r.Model})
	var next step
	for key, steps := range s.script {
		if n := s.taken[key]; strings.Contains(string(r.Body), key) && n < len(steps) {
			next, s.taken[key] = steps[n], n+1
		}
	}
	s.mu.Unlock()
	if next != nil {
		if err := next(ctx, progress); err != nil {
			return engine.Answer{}, err
		}
	}
	return mock.New(mock.Config{}).Answer(ctx, r, progress)
}

func (s *scripted) Ready(context.Context) (string, error) {
	if s.ready == nil {
		return "mock", nil
	}
	return "mock", s.ready()
}

func (s *scripted) Close() error { return nil }

// fails returns a step that ends in a fault.
func fails(k fault.Kind, c fault.Class) step {
	return func(context.Context, func()) error {
		return &fault.Error{Kind: k, Class: c, Op: "injected"}
	}
}

// hangs returns a step that reports progress so often, then hangs.
func hangs(progress int, every time.Duration) step {
	return func(ctx context.Context, report func()) error {
		for range progress {
			select {
			case <-time.After(every):
				report()
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
			}
		}
		<-ctx.Done()
		return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
	}
}

// slow returns a step that reports progress so often, then answers.
func slow(progress int, every time.Duration) step {
	return func(ctx context.Context, report func()) error {
		for range progress {
			select {
			case <-time.After(every):
				report()
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
			}
		}
		return nil
	}
}

func times(n int, s step) []step { return slices.Repeat([]step{s}, n) }

// fixture has in-memory stores with one planned run of one shard.
type fixture struct {
	host.Ports
	t      *testing.T
	engine *scripted
	worker *worker.Worker
	onItem []infer.Item     // calls of the hook
	limit  ratelimit.Amount // of the worker's pool
}

const run = inputtest.RunID

// newWorker returns a worker over the ports.
func newWorker(p host.Ports, id, engine string, inFlight int, cfg infer.Config,
	edit ...func(*worker.Config)) *worker.Worker {
	return workerOf(p, id, engine, inFlight, infer.New(cfg), edit...)
}

func workerOf(p host.Ports, id, engine string, inFlight int, x *infer.Executor,
	edit ...func(*worker.Config)) *worker.Worker {
	w := worker.Config{ID: id, Pool: "default", Engine: engine, InFlight: inFlight,
		Timings:            host.Timings(config.DefaultDeployment().Health),
		CheckpointInterval: time.Minute, Drain: 4 * time.Second, Grace: time.Second}
	for _, f := range edit {
		f(&w)
	}
	return worker.New(p, w, input.NewIndex(p.Blobs, p.Docs), x)
}

func newFixture(t *testing.T, m record.Manifest, file string, script map[string][]step) *fixture {
	t.Helper()
	d := &fixture{t: t, engine: &scripted{script: script, taken: map[string]int{}}, Ports: hosttest.New()}
	inputtest.Plan(t, d.Ports, m, file)
	return d
}

// work sends the shard's work message to a new worker and lets time pass.
func (d *fixture) work(wait time.Duration, edit ...func(*infer.Config)) {
	d.t.Helper()
	var mu sync.Mutex
	cfg := infer.Config{Engine: d.engine, Clock: d.Clock, Log: d.Log,
		ProgressTimeout: 30 * time.Second, MaxOutage: 10 * time.Second,
		OnItem: func(it infer.Item) { mu.Lock(); d.onItem = append(d.onItem, it); mu.Unlock() }}
	for _, f := range edit {
		f(&cfg)
	}
	d.worker = newWorker(d.Ports, identity.Content([]byte(time.Now().String())).String(), "", 8, cfg,
		func(w *worker.Config) { w.Limit = d.limit })
	work := events.Work{Run: string(run), Pool: "default"}
	if err := d.Send(d.t.Context(), host.WorkQueue("default"), work); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.worker.Run(ctx) }()
	d.t.Cleanup(func() { cancel(); <-done })
	advance(wait)
}

// advance lets d pass and waits until everything due has happened.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (d *fixture) shard() shard.Doc {
	return hosttest.Load[shard.Doc](d.t, d.Ports, identity.ShardKey(run, 0))
}

// row is the members of a row that tests check.
type row struct {
	ID         string      `json:"id"`
	CustomID   string      `json:"custom_id"`
	Completion any         `json:"completion"`
	All        []any       `json:"completions"`
	Class      fault.Class `json:"class"`
	Line       int         `json:"line"`
	Message    string      `json:"error"`
}

// rows returns the rows of the committed result: output rows, then error rows.
func (d *fixture) rows() []row {
	d.t.Helper()
	doc := d.shard()
	if doc.Result == nil {
		d.t.Fatalf("the shard has no result: %+v", doc)
	}
	var out []row
	dec := json.NewDecoder(strings.NewReader(hosttest.Object(d.t, d.Ports, doc.Result.Key)))
	for dec.More() {
		var r row
		if err := dec.Decode(&r); err != nil {
			d.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}
