// Package pipeline is the executor of pools whose workers are groups of processes: this one,
// rank 0, prepares and decodes, and the ranks that it starts generate.
//
// It answers shards with the executor infer over an engine of the pipeline, so that rows,
// grades, budgets and faults of items are the same as with any engine. What it adds is the
// fence between the attempt of a shard and the group:
//
//	Run ─▶ start a group, unless one runs ─▶ hard cut, unless other attempts run
//	    ─▶ infer ─▶ all rows: commit
//	              │ the attempt is abandoned: hard cut
//	              │ the group fails: an error, and the shard is released
//
// A hard cut begins a new epoch: results of abandoned work are dropped undecoded, and what
// other attempts still wait for is sent again. A rank that dies ends the attempts, charges no
// item, and the next attempt starts a new group.
package pipeline

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/latent"
	"rollout/gpuworker/pipeline/rank"
	"rollout/gpuworker/pipeline/stage0"
	"rollout/gpuworker/pipeline/text"
	"rollout/gpuworker/pipeline/wire"
	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// Config says how a pipeline runs.
type Config struct {
	config.Pipeline
	Model   string   // its name; that of the built-in model if it is text
	Command []string // starts a rank; nil starts this program
	Log     *slog.Logger
	// Reached is an optional hook, called at each point at which rank 0 commits the mesh to
	// wait.
	Reached func(point string, ids pipeline.IDs)
}

// Pipeline is the group of a worker, and its engine. It is safe for concurrent use.
type Pipeline struct {
	cfg    Config
	engine engine.Engine
	stage  interface {
		stage0.Source
		OnPending(wake func())
	}
	contract wire.Contract
	model    *weights.Bundle // nil without one

	mu       sync.Mutex
	group    *stage0.Group // nil before the first start
	closed   bool
	attempts int // that run now
}

// New returns a pipeline whose ranks are not started.
func New(cfg Config) (*Pipeline, error) {
	if cfg.Command == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fault.WithKind(fault.Internal, err, "find this program")
		}
		cfg.Command = rank.Command(self)
	}
	p := &Pipeline{cfg: cfg}
	if cfg.Stage == config.StageLatent {
		e := &latent.Engine{Name: cfg.Model, Regime: regimeOf(cfg.Recompute)}
		p.engine, p.stage, p.contract = e, e, wire.Latent()
		return p, nil
	}
	b, err := weights.Shipped()
	if err != nil {
		return nil, err
	}
	s, err := text.NewStage(b)
	if err != nil {
		return nil, err
	}
	p.stage, p.contract, p.model = s, wire.Text(), b
	p.engine, err = tiny.New(tiny.Config{Name: b.Name, Revision: b.Digest, Remote: s, Tokenizer: b.Tokenizer,
		ChatTurns: b.ChatTurns})
	return p, err
}

func regimeOf(recompute string) pipeline.Regime {
	switch recompute {
	case config.RecomputeContext:
		return pipeline.R0a
	case config.RecomputeLatent:
		return pipeline.R0
	}
	return pipeline.R1
}

// Engine returns the engine whose requests go through the pipeline.
func (p *Pipeline) Engine() engine.Engine { return p.engine }

// Close ends the group.
func (p *Pipeline) Close() error {
	p.mu.Lock()
	g := p.group
	p.closed = true
	p.mu.Unlock()
	if g != nil {
		g.Close()
	}
	return p.engine.Close()
}

// Group returns the running group, and starts one if there is none. Invalid means that the
// ranks differ in their settings; other faults may pass.
func (p *Pipeline) Group(ctx context.Context) (*stage0.Group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, fault.New(fault.Unavailable, "the pipeline is closed")
	case p.group != nil && p.group.Err() == nil:
		return p.group, nil
	case p.group != nil:
		p.group.Close() // waits for its ranks
	}
	parity := func(s group.Setup) group.Parity { return rank.ParityOf(s, p.model) }
	g, err := stage0.Start(ctx, stage0.Options{Ranks: p.cfg.Ranks, Command: p.cfg.Command, Contract: p.contract,
		Parity: parity, Timeout: p.cfg.Timeout.Std(), Digest: p.cfg.OutputDigest, Source: p.stage, Log: p.cfg.Log,
		Reached: p.cfg.Reached})
	if err != nil {
		p.group = nil
		return nil, err
	}
	p.group = g
	p.stage.OnPending(g.Wake)
	g.Wake()
	return g, nil
}

// Health returns how well the stages of the running group overlap; nil before the first start.
func (p *Pipeline) Health() *health.Pipeline {
	p.mu.Lock()
	g := p.group
	p.mu.Unlock()
	if g == nil {
		return nil
	}
	r, dropped := g.Report()
	return &health.Pipeline{Signature: string(r.Signature), OverlapScore: r.OverlapScore, Dropped: dropped}
}

// Executor returns the executor of shards over inner, which answers them with Engine.
func (p *Pipeline) Executor(inner worker.Executor) worker.Executor { return &executor{p, inner} }

type executor struct {
	p     *Pipeline
	inner worker.Executor
}

// Ready implements worker.Executor. It starts the group.
func (x *executor) Ready(ctx context.Context) error {
	if _, err := x.p.Group(ctx); err != nil {
		return err
	}
	return x.inner.Ready(ctx)
}

// Run implements worker.Executor.
func (x *executor) Run(ctx context.Context, s *worker.Shard) error {
	g, err := x.p.begin(ctx)
	if err != nil {
		return err
	}
	abandoned := true
	defer func() { x.p.end(g, abandoned) }()
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-g.Failed():
			end(fault.WithKind(fault.Unavailable, g.Err(), "the pipeline"))
		case <-attempt.Done():
		}
	}()
	err = x.inner.Run(attempt, s)
	end(nil)
	<-watched
	abandoned = err != nil || ctx.Err() != nil
	x.report(ctx, g, s)
	return err
}

// begin returns the group for an attempt. If no other one runs, it begins a new epoch:
// whatever an earlier attempt has left in the group is dropped.
func (p *Pipeline) begin(ctx context.Context) (*stage0.Group, error) {
	g, err := p.Group(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.attempts++
	first := p.attempts == 1
	p.mu.Unlock()
	if first {
		g.Cut()
	}
	return g, nil
}

// end ends an attempt. One that was abandoned may have left chunks in the group: the cut
// drops them, and what other attempts wait for is sent again.
func (p *Pipeline) end(g *stage0.Group, abandoned bool) {
	p.mu.Lock()
	p.attempts--
	p.mu.Unlock()
	if abandoned {
		g.Cut()
	}
}

// report logs how well the stages have overlapped.
func (x *executor) report(ctx context.Context, g *stage0.Group, s *worker.Shard) {
	r, dropped := g.Report()
	x.p.cfg.Log.DebugContext(ctx, "pipeline", "run", s.Manifest.Run, "shard", s.Index,
		"signature", string(r.Signature), "overlap_score", r.OverlapScore, "period", r.Period, "stage0", r.Stage0,
		"stage1", r.Stage1, "mesh_idle", r.Idle, "dropped", dropped)
}
