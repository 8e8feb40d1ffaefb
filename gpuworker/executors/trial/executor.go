package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"rollout/gpuworker/agentproxy"
	"rollout/gpuworker/grading"
	"rollout/gpuworker/isolation"
	"rollout/gpuworker/worker"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// Config is an executor's settings.
type Config struct {
	// Next answers the shards that are not trials of agents.
	Next worker.Executor
	// Runner runs agents. Its Sandbox is nil where the deployment permits none, and where
	// NoSandbox says why there is none.
	Runner    Runner
	NoSandbox error
	Artifacts *Artifacts
	Graders   *grading.Services
	Clock     clock.Clock
	Log       *slog.Logger
	// AtOnce is how many agents run at once, and Memory how many bytes their memory limits may
	// have together. An agent with a higher limit runs alone.
	AtOnce int
	Memory int64
}

// Executor runs the trials of agents, each beside its model's other requests, and leaves all
// other shards to the next executor. It is safe for concurrent use.
type Executor struct {
	Config
	room   *semaphore.Weighted // AtOnce
	memory *semaphore.Weighted // Memory, in MiB
	// noRoom says that a trial has met a full disk.
	noRoom atomic.Bool
}

// New returns an executor.
func New(c Config) *Executor {
	return &Executor{Config: c, room: semaphore.NewWeighted(int64(max(1, c.AtOnce))),
		memory: semaphore.NewWeighted(max(1, c.Memory>>20))}
}

// Ready implements worker.Executor. Once a trial has met a full disk, no more work is taken until
// there is room.
func (x *Executor) Ready(ctx context.Context) error {
	if x.noRoom.Load() {
		if err := x.Runner.Sandbox.Room(); err != nil {
			return err
		}
		x.noRoom.Store(false)
	}
	return x.Next.Ready(ctx)
}

// Run implements worker.Executor.
func (x *Executor) Run(ctx context.Context, s *worker.Shard) error {
	v, ok := variantOf(s)
	if !ok || !v.IsAgent() {
		return x.Next.Run(ctx, s)
	}
	if err := x.check(ctx, v); err != nil {
		return refuse(ctx, s, err)
	}
	if err := x.Graders.CheckPins(s.Manifest.Plugins); err != nil {
		return refuse(ctx, s, &worker.RefusedError{Outcome: "plugin_mismatch", Err: err})
	}
	graders, err := x.Graders.Graders(s.Manifest.Config.Grades)
	if err != nil {
		return err
	}
	agent, err := x.Artifacts.AgentOf(ctx, s.Manifest, v)
	if isFull(err) {
		x.noRoom.Store(true)
	}
	if err != nil {
		return refuse(ctx, s, unusable(v, err))
	}
	e := &execution{Executor: x, shard: s, variant: v, agent: agent, graders: graders}
	var began sync.WaitGroup
	var failed atomic.Pointer[error]
	begin := func(i int) bool {
		leave, ok := e.enter(ctx)
		if !ok {
			return false
		}
		began.Go(func() {
			defer leave()
			if err := e.run(ctx, i); err != nil {
				failed.Store(&err)
			}
		})
		return true
	}
	for i := range s.PendingItems(ctx, nil) {
		if !begin(i) {
			break
		}
	}
	began.Wait()
	// Holders that vanished say nothing against an agent: no program here can end a worker.
	for i := range s.Lines {
		if !s.HasRow(i) && failed.Load() == nil && !s.Stopped() && begin(i) {
			began.Wait()
		}
	}
	if err := failed.Load(); err != nil && ctx.Err() == nil {
		return refuse(ctx, s, *err)
	}
	return nil
}

// variantOf returns the variant of a trial; false for the shard of another run.
func variantOf(s *worker.Shard) (config.Variant, bool) {
	if s.Manifest.Config.Kind != config.KindTrials || len(s.Lines) == 0 {
		return config.Variant{}, false
	}
	t, err := trials.ReadTrial(s.Lines[0].Bytes) // each trial is a shard
	if err != nil {
		return config.Variant{}, false
	}
	for _, v := range s.Manifest.Config.Variants {
		if v.Name == t.Variant {
			return v, true
		}
	}
	return config.Variant{}, false
}

// check returns why this worker runs no trial of the agent.
func (x *Executor) check(ctx context.Context, v config.Variant) error {
	if x.NoSandbox != nil {
		return &worker.RefusedError{Outcome: "no_isolation", Err: x.NoSandbox}
	}
	if x.Runner.Sandbox == nil {
		return &worker.RefusedError{Outcome: "agents_not_permitted", Err: &fault.Error{Kind: fault.Denied,
			Err: fault.New(fault.Denied, "the variant %s has a command, and this worker's config permits no programs",
				v.Name),
			Remedy: "set processes = true in [trials] of rollout.toml, and start rollout again"}}
	}
	level, reason := x.Runner.Sandbox.Probe(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case level == isolation.Full, level == isolation.Trusted && v.Trusted:
		return nil
	}
	remedy := "run a worker on a machine with Linux 5.12 or newer that permits user namespaces"
	if level == isolation.Trusted {
		remedy += ", or set trusted = true if you trust the program"
	}
	return &worker.RefusedError{Outcome: "no_isolation", Err: &fault.Error{Kind: fault.Denied, Remedy: remedy,
		Err: fault.New(fault.Denied, "this machine cannot isolate the agent %s (its level is %s): %s", v.Name, level,
			reason)}}
}

// unusable makes the error of an artifact that no worker can use one for which the run must pause.
// Any other error stays.
func unusable(v config.Variant, err error) error {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Corrupt, fault.Invalid:
		return &worker.RefusedError{Outcome: "artifact_unusable", Err: &fault.Error{Kind: fault.KindOf(err),
			Err:    fmt.Errorf("the artifact of the agent %s can't be used: %w", v.Name, err),
			Remedy: "put its files into the bucket, and submit the tasks again"}}
	}
	return err
}

// refuse reports an error for which the run must pause. Any other releases the shard.
func refuse(ctx context.Context, s *worker.Shard, err error) error {
	var refused *worker.RefusedError
	if errors.As(err, &refused) && !s.ReportRefused(ctx, refused) {
		return fault.WithKind(fault.Unavailable, refused.Err, "the run goes on with other trials")
	}
	return err
}

// maxKept is how many bytes are kept of each of an agent's streams.
const maxKept = 4 << 10

// TaskOf returns the task of a trial's line, as the variant's agent may see it.
func TaskOf(m record.Manifest, v config.Variant, line []byte) (Task, error) {
	t, err := trials.ReadTrial(line)
	if err != nil {
		return Task{}, err
	}
	file, err := trials.TaskFile(line, v.Shows)
	return Task{Trial: t.ID, Model: m.ModelURI, Seed: trials.SeedOf(line), JSON: file}, err
}

// agentOf returns the agent of a variant, without its artifact.
func agentOf(v config.Variant) Agent {
	l := v.LimitsOf()
	wall := time.Duration(l.Seconds) * time.Second
	return Agent{Args: v.Command, Env: v.Env, Trusted: v.Trusted,
		Limits: isolation.Limits{Wall: wall, CPU: wall * cpusOfAgent, Memory: int64(l.MemoryMB) << 20, Processes: l.Processes,
			Output: int64(l.OutputMB) << 20, Keep: maxKept, Disk: int64(l.DiskMB) << 20, Files: int64(l.Files),
			OutFiles: maxOutFiles, OutBytes: maxOutFiles * maxResult, Grace: time.Second},
		Model: agentproxy.Limits{Requests: int64(l.Requests), Tokens: int64(l.Tokens), NanoUSD: int64(l.Dollars * 1e9),
			Concurrent: l.Concurrent}}
}

const (
	// cpusOfAgent is how many processors an agent may use all the time.
	cpusOfAgent = 4
	// maxOutFiles is how many files of an agent's out folder are looked at.
	maxOutFiles = 16
)

// execution is one shard.
type execution struct {
	*Executor
	shard   *worker.Shard
	variant config.Variant
	agent   Agent
	graders *grading.Graders
}

// enter waits until one more agent may run: by the machine's room, and by the worker's requests
// in flight, of which the trial is one as long as it runs.
func (e *execution) enter(ctx context.Context) (leave func(), ok bool) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-e.shard.Stopping():
			stop()
		case <-waiting.Done():
		}
	}()
	memory := min(e.agent.Limits.Memory>>20, max(1, e.Memory>>20))
	if e.room.Acquire(waiting, 1) != nil {
		return nil, false
	}
	if e.memory.Acquire(waiting, memory) != nil {
		e.room.Release(1)
		return nil, false
	}
	slot, permit, ok := e.shard.AcquireSlot(ctx, worker.Cost{})
	if !ok {
		e.memory.Release(memory)
		e.room.Release(1)
		return nil, false
	}
	permit.Cancel() // the agent's requests have their own
	return func() {
		slot.Release()
		e.memory.Release(memory)
		e.room.Release(1)
	}, true
}

// Tries of a trial whose sandbox or model fails, and the wait between them.
const (
	maxTries  = 3
	firstWait = time.Second
)

// run runs a trial and gives its item a row. It leaves it without one if the shard stops. An
// error is one of this worker or of the run: no other trial of the agent can run now.
func (e *execution) run(ctx context.Context, i int) error {
	line := e.shard.Lines[i]
	var stopped atomic.Bool
	task, err := TaskOf(e.shard.Manifest, e.variant, line.Bytes)
	if err != nil {
		return err
	}
	task.Begin = e.begin(&stopped)
	var wasted int64
	for try := 1; ; try++ {
		result, err := e.Runner.Run(ctx, e.agent, task)
		if err != nil || stopped.Load() {
			e.shard.AddWastedTokens(wasted+tokensOf(result), result.Model.Estimated > 0)
			if fault.Is(err, fault.Denied) {
				return &worker.RefusedError{Outcome: "no_isolation", Err: err}
			}
			return nil // the trial is run again elsewhere
		}
		switch {
		case result.End == NotStarted:
			return &worker.RefusedError{Outcome: "agent_not_started", Err: &fault.Error{Kind: fault.Invalid,
				Err:    fault.New(fault.Invalid, "the agent %s does not start: %s", e.variant.Name, result.Reason),
				Remedy: "mend its command, artifact or limits, and submit the tasks again"}}
		case result.Class == fault.Storage: // the disk stays full for a while: others repeat the trial
			e.noRoom.Store(true)
			e.shard.AddWastedTokens(wasted+tokensOf(result), result.Model.Estimated > 0)
			return fault.New(fault.Unavailable, "the trial %s: %s", task.Trial, result.Reason)
		case result.End != Infrastructure || try == maxTries:
			return e.put(ctx, i, result, try, wasted)
		}
		wasted += tokensOf(result)
		e.Log.WarnContext(ctx, "trial is tried again", observe.KeyRun, e.shard.Manifest.Run, "trial", task.Trial,
			observe.KeyReason, result.Reason)
		if err := e.Ready(ctx); err != nil { // others may have a server that is
			e.shard.AddWastedTokens(wasted, result.Model.Estimated > 0)
			return err
		}
		select {
		case <-time.After(firstWait << (try - 1)):
		case <-e.shard.Stopping():
		case <-ctx.Done():
		}
		if e.shard.Stopped() || ctx.Err() != nil {
			e.shard.AddWastedTokens(wasted, result.Model.Estimated > 0)
			return nil
		}
	}
}

func tokensOf(r Result) int64 { return r.Model.PromptTokens + r.Model.CompletionTokens }

// begin returns Task.Begin: each request of the agent takes a permit of its shard, as those of
// prompts do. stopped is set when a request is refused because the shard stops: what the agent
// does then says nothing about it.
func (e *execution) begin(stopped *atomic.Bool) func(context.Context, int, int64) (func(agentproxy.Tokens), error) {
	return func(ctx context.Context, promptBytes int, maxTokens int64) (func(agentproxy.Tokens), error) {
		permit, ok := e.shard.AcquirePermit(ctx, worker.Cost{PromptBytes: promptBytes, MaxTokens: maxTokens})
		if !ok {
			if e.shard.Stopped() {
				stopped.Store(true)
			}
			return nil, fault.New(fault.Unavailable, "the run stops")
		}
		began := e.Clock.Now()
		return func(t agentproxy.Tokens) {
			var err error
			permit.Report(t.RateLimit)
			switch {
			case t.Answered:
				permit.Settle(t.Prompt, t.Completion, !t.Estimated)
			default:
				permit.Fail(t.Prompt, t.Completion)
				err = fault.New(fault.Unavailable, "the agent got no answer")
			}
			e.shard.RecordRequest(e.Clock.Now().Sub(began), err)
		}, nil
	}
}

// limitName is the finish reason of an agent that a limit has ended.
func limitName(r Result) string { return cmp.Or(r.Limit, "stop") }

// errorText says why a trial has no answer.
func errorText(r Result, tries int) string {
	if r.End == Infrastructure {
		return fmt.Sprintf("%s (in %d tries)", r.Reason, tries)
	}
	return r.Reason
}
