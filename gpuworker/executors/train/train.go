// Package train is the executor of runs that train: one shard of one item, the
// training, whose row says what became of it.
//
//	rows ──▶ begin, or go on from a snapshot ──▶ steps ──▶ snapshot ──▶ … ──▶ files, row
//	                                               │ stopping
//	                                               └──▶ snapshot, no row: somebody goes on
//
// Every snapshot is named in the shard's document, and a training is a pure
// function of its settings, rows and base model: whoever holds the shard next
// goes on from the last one and ends with the same bytes. The executor never
// claims, commits or retries a shard, and never decides how a step is taken.
package train

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"

	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training"
	"rollout/gpuworker/training/snapshots"
	"rollout/gpuworker/worker"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// Config is an executor's settings.
type Config struct {
	Blobs     blob.Store
	Snapshots snapshot.Store
	Clock     clock.Clock
	Log       *slog.Logger
	Scratch   string // a folder for files on their way; of this process alone
	Threads   int    // of a training; any number gives the same bytes
}

// Executor trains. Safe for concurrent use.
type Executor struct{ cfg Config }

// New returns an executor.
func New(cfg Config) *Executor { return &Executor{cfg} }

// Ready returns nil: a training needs nothing but the processor.
func (x *Executor) Ready(context.Context) error { return nil }

// Run trains, if the shard has no row yet.
func (x *Executor) Run(ctx context.Context, s *worker.Shard) error {
	for i := range s.PendingItems(ctx, nil) {
		place, ok := s.AcquireSlot(ctx)
		if !ok {
			return nil
		}
		err := x.item(ctx, s, i)
		place.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// giveUp is how many holders in a row may die without a snapshot in between:
// then something about the training kills them.
const giveUp = 5

// item trains what the item stands for. An error hands the shard back.
func (x *Executor) item(ctx context.Context, s *worker.Shard, i int) error {
	t := execution{Executor: x, shard: s, item: i}
	if err := json.Unmarshal(s.Lines[i].Bytes, &t.job); err != nil {
		return fault.WithKind(fault.Corrupt, err, "read the job of run %s", s.Manifest.Run)
	}
	if kept, vanished := s.Snapshot(); vanished >= giveUp {
		from := "its beginning"
		if kept != nil {
			from = "its snapshot at step " + number(kept.Step)
		}
		return t.fail(&fault.Error{Kind: fault.Conflict, Class: fault.Poison, Err: fault.New(fault.Conflict, "%d workers in a row died of the training on its way from %s", vanished, from),
			Remedy: "look at the workers' logs: is there too little memory?"})
	}
	err := t.guarded(ctx)
	switch {
	case err == nil, ctx.Err() != nil, fault.Is(err, fault.Fenced):
		return nil
	case fault.ClassOf(err) == fault.InputChanged, fault.Is(err, fault.NotFound):
		return err // of the input: coordinate is told
	case fault.Is(err, fault.Invalid), fault.ClassOf(err) != "":
		return t.fail(err)
	}
	return err
}

// execution is one training.
type execution struct {
	*Executor
	shard  *worker.Shard
	item   int
	job    record.Job
	keeper snapshots.Manager
	pace
}

// guarded is train, of which a panic is the training's own failure: what else
// the process does must not end with it.
func (t *execution) guarded(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.cfg.Log.ErrorContext(ctx, "training panicked", observe.KeyRun, t.shard.Manifest.Run, observe.KeyError, p, "stack", string(debug.Stack()))
			err = &fault.Error{Kind: fault.Internal, Class: fault.Engine, Err: fault.New(fault.Internal, "the trainer failed by a fault of its own: %v", p),
				Remedy: "report it, with the worker's log"}
		}
	}()
	return t.train(ctx)
}

// train takes the training to its end, or to a snapshot if the shard stops.
func (t *execution) train(ctx context.Context) (err error) {
	scratch, err := newScratch(t.cfg.Scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	run := t.shard.Manifest
	t.keeper = snapshots.Manager{Store: t.cfg.Snapshots, Run: run.Run, Scratch: scratch, LoadTiny: weights.Shipped}
	rows, closeRows, err := t.rows(ctx, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRows()) }()
	index, err := training.OpenDataset(ctx, run.Config.Algorithm.Kind, rows)
	if err != nil {
		return classed(err, fault.InvalidLine)
	}
	trainer, err := t.begin(ctx, training.Options{Algorithm: *run.Config.Algorithm, Dataset: index, Threads: t.cfg.Threads})
	if err != nil {
		return err
	}
	t.tell(training.Report{Step: trainer.Meta().Step, Steps: trainer.Meta().Steps}, trainer.Meta().Loss)
	done, err := trainer.Run(ctx, run.Config.Snapshots().Every, training.Hooks{
		Progress: func(r training.Report) { t.tell(r, &r.Loss) },
		Save:     t.keep,
		Stop:     t.shard.Stopping(),
	})
	if fault.Is(err, fault.Conflict) {
		return classed(err, fault.Diverged)
	}
	if err != nil || !done {
		return err
	}
	return t.finish(ctx, trainer)
}

// begin goes on from the snapshot that the shard's document names. One that is
// lost or damaged costs the steps behind the newest that is not.
func (t *execution) begin(ctx context.Context, o training.Options) (*training.Trainer, error) {
	candidates, err := t.resumableSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, snap := range candidates {
		trainer, err := t.keeper.Resume(ctx, o, snap)
		if err == nil {
			t.cfg.Log.InfoContext(ctx, "training goes on", observe.KeyRun, t.keeper.Run, "snapshot", snap.ID, "step", trainer.Meta().Step)
			return trainer, nil
		}
		if !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		t.cfg.Log.ErrorContext(ctx, "snapshot can't be used; an older one is", observe.KeyRun, t.keeper.Run, "snapshot", snap.ID, observe.KeyError, err)
	}
	trainer, err := t.keeper.Begin(ctx, o)
	if fault.Is(err, fault.NotFound) { // not the input
		err = fault.WithKind(fault.Invalid, err, "begin the training")
	}
	return trainer, err
}

// resumableSnapshots are the snapshots that the training may go on from, the best
// first.
func (t *execution) resumableSnapshots(ctx context.Context) ([]snapshot.Snapshot, error) {
	kept, _ := t.shard.Snapshot()
	if kept == nil {
		return nil, nil
	}
	all, err := t.cfg.Snapshots.List(ctx, snapshot.Filter{Run: t.keeper.Run, Kind: snapshot.TrainState})
	if err != nil {
		return nil, err
	}
	var named, others []snapshot.Snapshot
	for _, s := range all {
		if s.ID == kept.ID {
			named = append(named, s)
		} else {
			others = append(others, s)
		}
	}
	return append(named, others...), nil
}

// fail gives the training its error row.
func (t *execution) fail(err error) error {
	line := t.shard.Lines[t.item]
	it, parse := dialect.Parse(dialect.Plain, line.Bytes)
	if parse != nil {
		return fault.WithKind(fault.Corrupt, parse, "read the job of run %s", t.shard.Manifest.Run)
	}
	class := fault.ClassOf(err)
	if class == "" {
		class = fault.Refused
	}
	t.shard.Put(t.item, dialect.AppendError(nil, dialect.Plain, it.Failure(t.job.ID, line.Place, class, err.Error())), class, worker.Tokens{})
	return nil
}

// classed gives an error of the training's own the class; another one keeps
// its kind alone.
func classed(err error, c fault.Class) error {
	if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Conflict) {
		return err
	}
	return &fault.Error{Kind: fault.KindOf(err), Class: c, Err: err}
}
