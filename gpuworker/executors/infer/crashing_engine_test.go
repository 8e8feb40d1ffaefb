package infer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// crashingEngine is an inference server that dies whenever a poisonous prompt arrives,
// with all that it works on, and is started anew after a while.
type crashingEngine struct {
	poison   []string      // prompts
	latency  time.Duration // of an answer
	lives    time.Duration // from a poisonous prompt's arrival to the death
	restarts time.Duration // from a death to the next start; 0: never
	silent   bool          // it does not name its starts
	lonely   bool          // it can tell that it works on nothing else
	slow     string        // this prompt is answered token by token for minutes
	onDeath  func()        // what dies with it

	mu      sync.Mutex
	deaths  int
	down    bool
	running int
	over    chan struct{}  // closed at its death
	asked   map[string]int // by the body
}

func newCrashingEngine(poison ...int) *crashingEngine {
	m := &crashingEngine{latency: 100 * time.Millisecond, lives: 10 * time.Millisecond, restarts: 3 * time.Second, lonely: true,
		over: make(chan struct{}), asked: map[string]int{}}
	for _, n := range poison {
		m.poison = append(m.poison, fmt.Sprintf("%q", fmt.Sprint(n)))
	}
	return m
}

// Answer answers, unless the server is down or dies meanwhile.
func (m *crashingEngine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	alone := r.Exclusive && m.lonely && m.quiet(ctx, progress)
	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return engine.Answer{}, fault.New(fault.Unavailable, "connection refused")
	}
	over, start := m.over, fmt.Sprintf("start %d", m.deaths)
	m.running++
	m.asked[string(r.Body)]++
	m.mu.Unlock()
	defer func() { m.mu.Lock(); m.running--; m.mu.Unlock() }()
	if m.silent {
		start = ""
	}
	dies := slices.ContainsFunc(m.poison, func(p string) bool { return strings.Contains(string(r.Body), p) })
	wait := m.latency
	for n := 0; n < 90 && m.slow != "" && strings.Contains(string(r.Body), m.slow) && ctx.Err() == nil; n++ {
		<-time.After(time.Second)
		progress()
	}
	if dies {
		wait = m.lives
	}
	select {
	case <-time.After(wait):
		if !dies {
			return mock.New(mock.Config{}).Answer(ctx, r, progress)
		}
		m.crash(over)
	case <-over:
	case <-ctx.Done():
		return engine.Answer{}, fault.WithKind(fault.Canceled, ctx.Err(), "answer")
	}
	return engine.Answer{}, fault.WithKind(fault.Unavailable, &engine.CrashError{Server: "server", Start: start, Solo: alone}, "answer")
}

// quiet waits for the server to have nothing to do, at most so long as engines
// do.
func (m *crashingEngine) quiet(ctx context.Context, progress func()) bool {
	for range 300 {
		progress()
		m.mu.Lock()
		quiet := m.running == 0
		m.mu.Unlock()
		if quiet || ctx.Err() != nil {
			return quiet
		}
		<-time.After(100 * time.Millisecond)
	}
	return false
}

// crash ends the server, once a start.
func (m *crashingEngine) crash(over chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != over {
		return
	}
	m.deaths, m.down, m.over = m.deaths+1, true, make(chan struct{})
	close(over)
	if m.onDeath != nil {
		m.onDeath()
	}
	if m.restarts > 0 {
		time.AfterFunc(m.restarts, func() { m.mu.Lock(); m.down = false; m.mu.Unlock() })
	}
}

func (m *crashingEngine) Ready(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return "", fault.New(fault.Unavailable, "connection refused")
	}
	return "mock", nil
}

func (m *crashingEngine) Close() error { return nil }

func (m *crashingEngine) crashCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deaths
}

// crashFixture is a run over a mortal server, and who answers it.
type crashFixture struct {
	host.Ports
	t       *testing.T
	server  *crashingEngine
	engine  string // its name; "" if it lives in the worker
	shards  int
	workers int
}

const perShard = 100

func newCrashFixture(t *testing.T, m *crashingEngine, shards int, edit ...func(*record.Manifest)) *crashFixture {
	t.Helper()
	w := &crashFixture{t: t, server: m, engine: "server", shards: shards, Ports: hosttest.New()}
	mf := inputtest.Manifest(perShard)
	for _, f := range edit {
		f(&mf)
	}
	inputtest.Plan(t, w.Ports, mf, inputtest.Prompts(0, shards*perShard))
	return w
}

// startWorkers lets a worker answer; killed, it is gone without a word.
func (w *crashFixture) startWorkers() (kill func()) {
	w.workers++
	cfg := infer.Config{Engine: w.server, Clock: w.Clock, Log: w.Log, ProgressTimeout: 30 * time.Second, MaxOutage: 10 * time.Second}
	one := worker.New(w.Ports, worker.Config{ID: fmt.Sprintf("w%d", w.workers), Pool: "default", Engine: w.engine, Timings: host.Timings(config.DefaultDeployment().Health),
		InFlight: 32, CheckpointInterval: time.Minute, Drain: 4 * time.Second, Grace: time.Second}, input.NewIndex(w.Blobs, w.Docs), infer.New(cfg))
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = one.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	return cancel
}

// until offers what is not done, every other second, as coordinate would. It
// returns when all is, or time is over.
func (w *crashFixture) until(limit time.Duration) []shard.Doc {
	w.t.Helper()
	for begun := time.Now(); ; pass(2 * time.Second) {
		docs, open := make([]shard.Doc, w.shards), 0
		for n := range docs {
			docs[n] = shard.New(run, n)
			if _, _, err := host.Load(w.t.Context(), w.Docs, identity.ShardKey(run, n), &docs[n]); err != nil {
				w.t.Fatal(err)
			}
			if docs[n].Open() {
				open++
				if visible, _, _ := w.Queues.(*memory.Queues).Depth(w.t.Context(), host.WorkQueue("default")); visible >= w.shards {
					continue // enough for all
				}
				if err := w.Send(w.t.Context(), host.WorkQueue("default"), events.Work{Run: string(run), Shard: n, Row: n, Pool: "default"}); err != nil {
					w.t.Fatal(err)
				}
			}
		}
		if open == 0 || time.Since(begun) > limit {
			return docs
		}
	}
}

// wantPoison checks that those items alone have an error row, of the class
// poison, and that all others are answered.
func (w *crashFixture) wantPoison(docs []shard.Doc, items ...int) {
	w.t.Helper()
	got, ok := []int{}, 0
	for n, d := range docs {
		if d.State != shard.Done || d.Result == nil {
			w.t.Fatalf("shard %d is %+v", n, d)
		}
		bad := 0
		for l := range strings.Lines(hosttest.Object(w.t, w.Ports, d.Result.Key)) {
			if strings.Contains(l, `"class":"poison"`) {
				var i int
				at := strings.Index(l, `"item":`)
				if _, err := fmt.Sscanf(l[at:], `"item":%d`, &i); err != nil {
					w.t.Fatalf("%v in %s", err, l)
				}
				got = append(got, i)
				bad++
			}
		}
		if d.Counts.Failed != bad || d.Counts.ByClass["poison"] != bad || d.Counts.OK != perShard-bad {
			w.t.Errorf("shard %d counts %+v, want %d poison and nothing else", n, d.Counts, bad)
		}
		ok += d.Counts.OK
	}
	slices.Sort(got)
	if !slices.Equal(got, items) || ok != w.shards*perShard-len(items) {
		w.t.Errorf("poison: %v and %d answers, want %v", got, ok, items)
	}
}

func (w *crashFixture) wantDeaths(most int) {
	w.t.Helper()
	if n := w.server.crashCount(); n > most {
		w.t.Errorf("the server died %d times, more than %d", n, most)
	} else {
		w.t.Logf("the server died %d times", n)
	}
}
