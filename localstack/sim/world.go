// Package sim simulates the whole system, functions and workers, with stores in
// memory, simulated time, and a seed that decides every fault.
//
// The processes are the real code over the real ports. Only the drivers, the
// clock and the engine are simulated. Each call to a store is delayed, may fail,
// may lose its reply, and may be the last one of its process. Messages are lost,
// repeated and reordered. Clocks differ. Some worlds have inference servers in memory
// behind the real client, which fail some prompts, all requests for a time, or all
// requests until a user mends a setting. Some runs are rollouts that reflect. In some worlds,
// five runs of several weights share a pool. The invariants are checked during the
// simulation and at its end. A seed replays its faults; only the order of what goroutines
// do at the same instant may differ.
package sim

import (
	"context"
	"encoding/json"
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
	"rollout/localstack/rounds"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/retry"
)

// Limits of a simulation, in simulated time.
const (
	faultsFor = 40 * time.Second // faults end then, so that the run can end
	patience  = 3 * time.Hour    // the run must have ended by then

	longestCheckpoint = 20 * time.Second // the longest time between checkpoints
)

// world is one simulation: its stores, its seed and its faults.
type world struct {
	t           testing.TB
	seed        uint64
	rand        *seededRand
	timings     health.Timings
	rates       faultRates
	audit       *audit
	faultsEnded atomic.Bool
	silent      atomic.Bool // the engine must not be asked: see checkSilent
	poison      poison
	server      server
	limit       limit
	machines    machines
	spending    spending
	maxWords    int  // of prompts in a run with a budget; 0: they are short
	segmented   bool // output files are written in segments
	thefts      bool // shards are taken from living holders
	rounds      int  // of a run whose plan grows; 0 for a batch
	judged      int  // the round that workers of another pool answer; 0 for none
	judging     bool // workers of another pool judge the answers of a batch
	constraints constraints
	tickets     *tickets     // of a rollout; nil for other kinds of run
	neighbours  []neighbour  // runs that share the pool
	http        *httpServers // nil in worlds whose workers have the fakeEngine alone

	bucket    *memory.Bucket
	store     keptBlobs // the bucket, as all processes use it
	docs      *memory.Documents
	queues    *memory.Queues
	deploy    config.Deployment
	startedAt time.Time

	read    readState
	tracing sync.Mutex
	trace   strings.Builder
}

// newWorld returns a world without processes. http says that its workers certainly have
// the real client, rollout that its run is certainly a rollout, and shared that other runs
// share its pool wherever they may. It must be called in a synctest bubble.
func newWorld(t testing.TB, seed uint64, http, rollout, shared bool) *world {
	r := newRand(seed)
	deploy := config.DefaultDeployment()
	deploy.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	deploy.Engine.PromptPrice, deploy.Engine.CompletionPrice = tokenPrices().Prompt, tokenPrices().Completion
	deploy.Graders = map[string]config.GraderService{"reward": scoringService()}
	w := &world{t: t, seed: seed, rand: r, timings: host.Timings(deploy.Health), deploy: deploy, startedAt: time.Now(),
		bucket: memory.NewBucket(clock.System{}), docs: memory.NewDocuments(), queues: memory.NewQueues(clock.System{}),
	}
	w.store = keptBlobs{w.bucket, w, memory.NewBucket(clock.System{})}
	w.audit = newAudit(w)
	w.poison = w.drawPoison()
	w.limit.Amount = w.drawLimit()
	w.thefts = w.drawThefts()
	w.segmented = r.intN("segmented", 3) == 0
	w.rounds = w.drawRounds()
	w.http = w.drawHTTPServers(http)
	w.judged = w.drawJudged()
	w.constraints = w.drawConstraints()
	w.judging = w.drawJudging()
	if w.tickets = w.drawTickets(rollout); w.hasJudges() {
		w.deploy.Pools = append(w.deploy.Pools, config.Pool{Name: judges, Model: rounds.JudgeModel})
	}
	w.neighbours = w.drawNeighbours(shared)
	level := func(label string, highest float64) float64 { // 0 in a third of all worlds
		return highest * float64(r.intN(label, 3)) / 2
	}
	w.rates = faultRates{Crash: level("crash", 0.003), Fail: level("fail", 0.03), LoseReply: level("lose", 0.03),
		Drop: level("drop", 0.1), Duplicate: level("duplicate", 0.3), Late: level("late", 0.3)}
	return w
}

// hasJudges reports whether the pool of judges has work: it judges answers, or reflects.
func (w *world) hasJudges() bool {
	return w.judging || w.judged > 0 || w.tickets != nil && w.tickets.reflector != ""
}

// tracef adds a line to the trace that a failure prints.
func (w *world) tracef(format string, args ...any) {
	w.tracing.Lock()
	defer w.tracing.Unlock()
	fmt.Fprintf(&w.trace, "%9.3fs ", time.Since(w.startedAt).Seconds())
	fmt.Fprintf(&w.trace, format+"\n", args...)
}

// ports are the process's ports: the stores with their faults, and the retries of
// every process.
func (w *world) ports(p *process) host.Ports {
	policy := retry.Policy{Rand: func() float64 { return float64(w.rand.uint64("retry/"+p.name)>>11) / (1 << 53) }}
	return host.Ports{
		Blobs: blobs{p, w.store}, Docs: workerDocuments{document.Reliable(documents{p, w.docs}, policy), p},
		Queues: queue.Reliable(queues{p, w.queues}, policy), Clock: p, Source: p.name,
		Log: slog.New(slog.NewTextHandler(logWriter{w, p}, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
}

// logWriter writes a process's log to the trace.
type logWriter struct {
	w *world
	p *process
}

func (l logWriter) Write(b []byte) (int, error) {
	l.w.tracef("%s %s", l.p.name, strings.TrimSpace(string(b)))
	return len(b), nil
}

// restartLoop runs a process until it ends and starts it again under a new name,
// until ctx ends.
func (w *world) restartLoop(ctx context.Context, name string, run func(p *process)) {
	for n := 0; ctx.Err() == nil; n++ {
		p := w.start(ctx, fmt.Sprintf("%s-%d", name, n), w.rates.Crash)
		run(p)
		p.crash()
		pause(ctx, w.rand.duration("rest/"+name, 10*time.Millisecond, 4*time.Second))
	}
}

// runFunctions runs all functions in one process, and restarts it.
func (w *world) runFunctions(ctx context.Context, name string) {
	w.restartLoop(ctx, name, func(p *process) {
		s := inprocess.New(w.ports(p), inprocess.Config{Deployment: w.deploy, Segments: w.segments(p), Kinds: w.kinds()})
		_ = s.Run(p.ctx) // it ends only with its process
	})
}

// segments draws the sizes of segments for a process. nil writes files whole.
// All processes of a world write segments, or none does.
func (w *world) segments(p *process) *finalize.SegmentOptions {
	if !w.segmented {
		return nil
	}
	var n atomic.Int64
	return &finalize.SegmentOptions{StreamBelow: 1, MinBytes: int64(1 + w.rand.intN("segment bytes/"+p.name, 20_000)),
		MaxShards:   1 + w.rand.intN("segment shards/"+p.name, 9),
		MaxRequests: 1 + w.rand.intN("segments at once/"+p.name, 20),
		Nonce:       func() string { return fmt.Sprintf("%s-%d", p.name, n.Add(1)) }}
}

// runWorkers runs one worker at a time, and restarts it. Some are drained, frozen
// for longer than their lease, or killed.
func (w *world) runWorkers(ctx context.Context, pool, name string) {
	engine := ""
	if w.poison == killsServer {
		engine = "server"
	}
	w.restartLoop(ctx, name, func(p *process) {
		if w.poison != noPoison {
			p.crashes = 0
		}
		ports := w.ports(p)
		inFlight := 1 + w.rand.intN("in flight/"+name, 16)
		e := &fakeEngine{process: p}
		cfg := infer.Config{Engine: e, Clock: p, Log: ports.Log, ProgressTimeout: time.Minute, MaxOutage: 5 * time.Second,
			Graders: p.services()}
		if w.http != nil {
			e.servers, cfg.Servers = w.http.connect(p, inFlight)
			cfg.ProgressTimeout = progressTimeout
		}
		defer e.Close()
		exec := infer.New(cfg)
		settings := worker.Config{ID: p.name, Pool: pool, Engine: engine, Timings: w.timings,
			InFlight:           inFlight,
			CheckpointInterval: w.rand.duration("checkpoint/"+name, time.Second, longestCheckpoint),
			Drain:              5 * time.Second, Grace: 3 * time.Second, Limit: w.limit.Amount,
			Kinds: w.kinds()}
		w.machines.launch(p, &settings)
		defer w.machines.end(p)
		wk := worker.New(ports, settings, input.NewIndex(ports.Blobs, ports.Docs), exec)
		var disturbance sync.WaitGroup
		if w.faultsOn() && w.rand.chance("fate/"+name, 0.5) {
			disturbance.Go(func() { w.disturb(p, wk) })
		}
		if err := wk.Run(p.ctx); err != nil {
			w.tracef("%s ended: %v", p.name, err)
			w.limit.end(p.name)
			w.spending.end(p.name)
		}
		p.crash() // ends the disturbance
		disturbance.Wait()
	})
}

// readState is a run's state as it was read last.
type readState struct {
	mu       sync.Mutex
	revision document.Revision
	state    run.State
}

// state reads a run's state without faults. The caller does not change it.
func (w *world) state(ctx context.Context, id identity.RunID) (s run.State, found bool) {
	d, err := w.docs.Get(ctx, record.CoordinatorKey(id))
	if fault.Is(err, fault.NotFound) {
		return s, false
	}
	r := &w.read
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && (r.state.Run != id || r.revision != d.Revision) {
		r.state, r.revision = run.State{}, d.Revision
		err = json.Unmarshal(d.Value, &r.state)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r.state, true
}

// api is the API that user commands call, over stores without faults.
func (w *world) api() *api.Service {
	return api.New(host.Ports{Blobs: w.bucket, Docs: w.docs, Queues: w.queues, Clock: clock.System{}, Source: "user",
		Log: slog.New(slog.DiscardHandler)}, w.deploy, cloud.OneMachine())
}

// object reads an object without faults, also one that was freed.
func (w *world) object(ctx context.Context, key string) []byte {
	r, _, err := withFreed{w.store}.Get(ctx, key, blob.GetOptions{})
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

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
