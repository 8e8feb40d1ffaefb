// Package sim runs the whole system, functions and workers, in one simulated
// world: in-memory stores, simulated time, and a seed that decides everything
// that goes wrong.
//
// Processes are the real code over the real ports; only the drivers, the
// clock and the engine are simulated. Each call to a store comes late, may
// fail, may lose its reply, and may be the last thing its process did;
// messages are lost, repeated and reordered; clocks disagree. At the end the
// invariants are checked. A seed replays.
package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/finalize"
	"rollout/functions/inprocess"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/retry"
)

// chaos says how often what goes wrong, as chances a call or a message.
type chaos struct {
	Crash, Fail, LoseReply, Drop, Duplicate, Late float64
}

// Times of a simulation.
const (
	faultsFor = 40 * time.Second // then the world behaves, so that runs must end
	patience  = 3 * time.Hour    // and by then they must have
)

// World is one simulation.
type World struct {
	t           testing.TB
	seed        uint64
	rand        *rand
	timings     health.Timings
	chaos       chaos
	audit       *audit
	faultsEnded atomic.Bool
	poison      poison
	server      server
	// segmented says that the files of runs are written in segments.
	segmented bool

	bucket *memory.Bucket
	docs   *memory.Documents
	queues *memory.Queues
	deploy config.Deployment
	begun  time.Time

	tracing sync.Mutex
	trace   strings.Builder
}

// newWorld returns a world in which nothing runs yet. It must be made within a
// synctest bubble.
func newWorld(t testing.TB, seed uint64) *World {
	d := newRand(seed)
	deploy := config.DefaultDeployment()
	deploy.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	w := &World{t: t, seed: seed, rand: d, timings: host.Timings(deploy.Health), deploy: deploy, begun: time.Now(),
		bucket: memory.NewBucket(clock.System{}), docs: memory.NewDocuments(), queues: memory.NewQueues(clock.System{}),
	}
	w.audit = newAudit(w)
	w.poison = w.drawPoison()
	w.segmented = d.intN("segmented", 3) == 0
	level := func(name string, most float64) float64 { // a third of all worlds lack each kind of fault
		return most * max(0, float64(d.intN(name, 3))-0) / 2
	}
	w.chaos = chaos{Crash: level("crash", 0.003), Fail: level("fail", 0.03), LoseReply: level("lose", 0.03),
		Drop: level("drop", 0.1), Duplicate: level("duplicate", 0.3), Late: level("late", 0.3)}
	return w
}

// faultsOn reports whether things still go wrong.
func (w *World) faultsOn() bool { return !w.faultsEnded.Load() }

func (w *World) tracef(format string, args ...any) {
	w.tracing.Lock()
	defer w.tracing.Unlock()
	fmt.Fprintf(&w.trace, "%9.3fs ", time.Since(w.begun).Seconds())
	fmt.Fprintf(&w.trace, format+"\n", args...)
}

// ports are the stores as the process sees them, with the retries that every
// process has.
func (w *World) ports(p *process) host.Ports {
	policy := retry.Policy{Rand: func() float64 { return float64(w.rand.uint64("retry/"+p.name)>>11) / (1 << 53) }}
	return host.Ports{
		Blobs: blobs{p, w.bucket}, Docs: document.Reliable(documents{p, w.docs}, policy),
		Queues: queue.Reliable(queues{p, w.queues}, policy), Clock: p, Source: p.name,
		Log: slog.New(slog.NewTextHandler(logWriter{w, p}, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
}

// logWriter puts a process's log into the trace.
type logWriter struct {
	w *World
	p *process
}

func (l logWriter) Write(b []byte) (int, error) {
	l.w.tracef("%s %s", l.p.name, strings.TrimSpace(string(b)))
	return len(b), nil
}

// restartLoop runs a process again and again, each time under a new name, until ctx
// ends.
func (w *World) restartLoop(ctx context.Context, name string, live func(p *process)) {
	for n := 0; ctx.Err() == nil; n++ {
		p := w.start(ctx, fmt.Sprintf("%s-%d", name, n), w.chaos.Crash)
		live(p)
		p.crash()
		pause(ctx, w.rand.duration("rest/"+name, 10*time.Millisecond, 4*time.Second))
	}
}

// runFunctions runs all functions as one process.
func (w *World) runFunctions(ctx context.Context, name string) {
	w.restartLoop(ctx, name, func(p *process) {
		s := inprocess.New(w.ports(p), inprocess.Config{Deployment: w.deploy, Segments: w.segments(p)})
		_ = s.Run(p.ctx) // it ends with its process only
	})
}

// segments decides whether the files of runs are written in segments, and how
// tiny those are. All processes of a world do it the same way, but for where
// segments begin and end.
func (w *World) segments(p *process) *finalize.SegmentOptions {
	if !w.segmented {
		return nil
	}
	var n atomic.Int64
	return &finalize.SegmentOptions{StreamBelow: 1, MinBytes: int64(1 + w.rand.intN("segment bytes/"+p.name, 20_000)), MaxShards: 1 + w.rand.intN("segment shards/"+p.name, 9),
		MaxRequests: 1 + w.rand.intN("segments at once/"+p.name, 20), Nonce: func() string { return fmt.Sprintf("%s-%d", p.name, n.Add(1)) }}
}

// runWorkers runs one worker at a time. Now and then it is drained, or frozen for
// longer than its lease.
func (w *World) runWorkers(ctx context.Context, name string) {
	shared := ""
	if w.poison == killsServer {
		shared = "server"
	}
	w.restartLoop(ctx, name, func(p *process) {
		if w.poison != noPoison {
			p.crashes = 0
		}
		ports := w.ports(p)
		exec := infer.New(infer.Config{Engine: &fakeEngine{process: p}, Clock: p, Log: ports.Log, ProgressTimeout: time.Minute, MaxOutage: 5 * time.Second})
		wk := worker.New(ports, worker.Config{ID: p.name, Pool: "default", Engine: shared, Timings: w.timings, InFlight: 1 + w.rand.intN("in flight/"+name, 16),
			CheckpointInterval: w.rand.duration("checkpoint/"+name, time.Second, 20*time.Second), Drain: 5 * time.Second, Grace: 3 * time.Second},
			input.NewIndex(ports.Blobs, ports.Docs), exec)
		var fate sync.WaitGroup
		if w.faultsOn() && w.rand.chance("fate/"+name, 0.5) {
			fate.Go(func() { w.disturb(p, wk) })
		}
		if err := wk.Run(p.ctx); err != nil {
			w.tracef("%s ended: %v", p.name, err)
		}
		p.crash() // and so its fate ends
		fate.Wait()
	})
}

// disturb drains, freezes or kills a worker after a while.
func (w *World) disturb(p *process, wk *worker.Worker) {
	pause(p.ctx, w.rand.duration("when/"+p.name, 0, 15*time.Second))
	if p.ctx.Err() != nil {
		return
	}
	what := w.rand.intN("what/"+p.name, 3)
	if w.poison != noPoison {
		what = 0
	}
	switch what {
	case 0:
		wk.Drain("a notice")
		wk.Drain("the same notice again")
	case 1:
		w.tracef("%s is frozen", p.name)
		thaw := p.freeze()
		pause(p.ctx, w.rand.duration("frozen/"+p.name, time.Second, 12*time.Second))
		thaw()
		w.tracef("%s is thawed", p.name)
	case 2:
		w.tracef("%s is killed", p.name)
		p.crash()
	}
}

// state reads a run's state as it is, past all faults.
func (w *World) state(ctx context.Context, id identity.RunID) (s run.State, found bool) {
	_, found, err := host.Load(ctx, w.docs, record.CoordinatorKey(id), &s)
	if err != nil {
		w.t.Fatal(err)
	}
	return s, found
}

// api is the service that a user's command calls, over stores without faults.
func (w *World) api() *api.Service {
	return api.New(host.Ports{Blobs: w.bucket, Docs: w.docs, Queues: w.queues, Clock: clock.System{}, Source: "user", Log: slog.New(slog.DiscardHandler)}, w.deploy, cloud.OneMachine())
}

// object reads an object as it is.
func (w *World) object(ctx context.Context, key string) []byte {
	r, _, err := w.bucket.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
