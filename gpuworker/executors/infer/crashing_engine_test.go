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
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// crashingEngine is an inference server that crashes on poison prompts, with all
// requests in flight, and restarts after a while.
type crashingEngine struct {
	poison       []string      // prompts
	latency      time.Duration // of an answer
	crashAfter   time.Duration // the arrival of a poison prompt
	restartAfter time.Duration // a crash; 0: never
	noStart      bool          // it does not name its starts
	exclusive    bool          // it reports whether it works on anything else
	slow         string        // this prompt is answered token by token for minutes
	onCrash      func()

	mu      sync.Mutex
	crashes int
	down    bool
	running int
	crashed chan struct{}  // closed at the next crash
	asked   map[string]int // requests by body
}

func newCrashingEngine(poison ...int) *crashingEngine {
	m := &crashingEngine{latency: 100 * time.Millisecond, crashAfter: 10 * time.Millisecond,
		restartAfter: 3 * time.Second, exclusive: true, crashed: make(chan struct{}), asked: map[string]int{}}
	for _, n := range poison {
		m.poison = append(m.poison, fmt.Sprintf("%q", fmt.Sprint(n)))
	}
	return m
}

// Answer answers, unless the server is down or crashes during the request.
func (m *crashingEngine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	solo := r.Exclusive && m.exclusive && m.awaitIdle(ctx, progress)
	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return engine.Answer{}, fault.New(fault.Unavailable, "connection refused")
	}
	crashed, start := m.crashed, fmt.Sprintf("start %d", m.crashes)
	m.running++
	m.asked[string(r.Body)]++
	m.mu.Unlock()
	defer func() { m.mu.Lock(); m.running--; m.mu.Unlock() }()
	if m.noStart {
		start = ""
	}
	poison := slices.ContainsFunc(m.poison, func(p string) bool { return strings.Contains(string(r.Body), p) })
	wait := m.latency
	for n := 0; n < 90 && m.slow != "" && strings.Contains(string(r.Body), m.slow) && ctx.Err() == nil; n++ {
		<-time.After(time.Second)
		progress()
	}
	if poison {
		wait = m.crashAfter
	}
	select {
	case <-time.After(wait):
		if !poison {
			return mock.New(mock.Config{}).Answer(ctx, r, progress)
		}
		m.crash(crashed)
	case <-crashed:
	case <-ctx.Done():
		return engine.Answer{}, fault.WithKind(fault.Canceled, ctx.Err(), "answer")
	}
	return engine.Answer{}, fault.WithKind(fault.Unavailable,
		&engine.CrashError{Server: "server", Start: start, Solo: solo}, "answer")
}

// awaitIdle waits up to 30 s, as the balancer does, until the server has nothing to
// do, and reports whether it has.
func (m *crashingEngine) awaitIdle(ctx context.Context, progress func()) bool {
	for range 300 {
		progress()
		m.mu.Lock()
		idle := m.running == 0
		m.mu.Unlock()
		if idle || ctx.Err() != nil {
			return idle
		}
		<-time.After(100 * time.Millisecond)
	}
	return false
}

// crash crashes the server, unless the start that the request belongs to has
// crashed already.
func (m *crashingEngine) crash(crashed chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed != crashed {
		return
	}
	m.crashes, m.down, m.crashed = m.crashes+1, true, make(chan struct{})
	close(crashed)
	if m.onCrash != nil {
		m.onCrash()
	}
	if m.restartAfter > 0 {
		time.AfterFunc(m.restartAfter, func() { m.mu.Lock(); m.down = false; m.mu.Unlock() })
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
	return m.crashes
}

// crashFixture has a planned run, workers, and the crashing server that they ask.
type crashFixture struct {
	host.Ports
	t       *testing.T
	server  *crashingEngine
	engine  string // its name; "" if it lives in the worker
	shards  int
	workers int // started so far
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

// startWorker starts a worker. Kill ends it without a last heartbeat.
func (w *crashFixture) startWorker() (kill func()) {
	w.workers++
	one := newWorker(w.Ports, fmt.Sprintf("w%d", w.workers), w.engine, 32, infer.Config{Engine: w.server,
		Clock: w.Clock, Log: w.Log, ProgressTimeout: 30 * time.Second, MaxOutage: 10 * time.Second})
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = one.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	return cancel
}

// runFor sends messages for open shards every other second, as coordinate would,
// until all are done or the limit is reached. It returns the shards' documents.
func (w *crashFixture) runFor(limit time.Duration) []shard.Doc {
	w.t.Helper()
	for begun := time.Now(); ; advance(2 * time.Second) {
		docs, open := make([]shard.Doc, w.shards), 0
		for n := range docs {
			docs[n] = shard.New(run, n)
			if _, _, err := host.Load(w.t.Context(), w.Docs, identity.ShardKey(run, n), &docs[n]); err != nil {
				w.t.Fatal(err)
			}
			if docs[n].Open() {
				open++
				queue := host.WorkQueue("default")
				if visible, _, _ := w.Queues.(*memory.Queues).Depth(w.t.Context(), queue); visible >= w.shards {
					continue // enough for all
				}
				work := events.Work{Run: string(run), Shard: n, Row: n, Pool: "default"}
				if err := w.Send(w.t.Context(), queue, work); err != nil {
					w.t.Fatal(err)
				}
			}
		}
		if open == 0 || time.Since(begun) > limit {
			return docs
		}
	}
}

// wantPoison checks that exactly these items have an error row, of the class poison,
// and that all others are answered.
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

func (w *crashFixture) wantCrashes(most int) {
	w.t.Helper()
	if n := w.server.crashCount(); n > most {
		w.t.Errorf("the server crashed %d times, want at most %d", n, most)
	} else {
		w.t.Logf("the server crashed %d times", n)
	}
}
