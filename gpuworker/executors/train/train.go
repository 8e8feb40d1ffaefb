// Package train is the executor of training runs. Such a run has one shard of
// one item, the training, whose row holds its outcome.
//
//	dataset ─▶ begin, or resume from a snapshot ─▶ steps ─▶ snapshot ─▶ … ─▶ files, row
//	                                                 │ stopping
//	                                                 └─▶ snapshot, no row: the next holder resumes
//
// The shard's document names each snapshot. A training is a pure function of its
// settings, dataset and base model: the next holder resumes from the last
// snapshot and ends with the same bytes. The package never claims, commits or
// retries a shard, and package training decides how a step is made.
package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	Scratch   string // a folder for temporary files, shared by the workers of the machine
	Threads   int    // of a training; any number gives the same bytes
}

// Executor trains. It is safe for concurrent use.
type Executor struct{ cfg Config }

// New returns an executor.
func New(cfg Config) *Executor { return &Executor{cfg} }

// Ready returns nil: a training runs in this process.
func (x *Executor) Ready(context.Context) error { return nil }

// Run trains, unless the shard has its row.
func (x *Executor) Run(ctx context.Context, s *worker.Shard) error {
	for i := range s.PendingItems(ctx, nil) {
		slot, _, ok := s.AcquireSlot(ctx, worker.Cost{})
		if !ok {
			return nil
		}
		err := x.trainItem(ctx, s, i)
		slot.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// maxVanished is how many consecutive holders may die without a snapshot in
// between. More mean that the training itself kills its workers.
const maxVanished = 5

// trainItem runs the training of the item. An error releases the shard.
func (x *Executor) trainItem(ctx context.Context, s *worker.Shard, i int) error {
	t := execution{Executor: x, shard: s, item: i}
	if err := json.Unmarshal(s.Lines[i].Bytes, &t.job); err != nil {
		return fault.WithKind(fault.Corrupt, err, "read the job of run %s", s.Manifest.Run)
	}
	if newest, vanished := s.Snapshot(); vanished >= maxVanished {
		from := "the start"
		if newest != nil {
			from = fmt.Sprintf("its snapshot at step %d", newest.Step)
		}
		return t.fail(&fault.Error{Kind: fault.Conflict, Class: fault.Poison,
			Err:    fault.New(fault.Conflict, "%d consecutive workers died during the training from %s", vanished, from),
			Remedy: "find the reason in the workers' logs; check that their memory is large enough"})
	}
	err := t.trainOrRecover(ctx)
	switch {
	case err == nil, ctx.Err() != nil, fault.Is(err, fault.Fenced):
		return nil
	case fault.ClassOf(err) == fault.InputChanged, fault.Is(err, fault.NotFound):
		return err // a fault of the input: the worker tells coordinate
	case fault.Is(err, fault.Invalid), fault.ClassOf(err) != "":
		return t.fail(err)
	}
	return err
}

// execution is one training.
type execution struct {
	*Executor
	shard     *worker.Shard
	item      int
	job       record.Job
	snapshots snapshots.Manager
	pace
}

// trainOrRecover trains and turns a panic into the training's own failure, so
// that it does not end the process.
func (t *execution) trainOrRecover(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.cfg.Log.ErrorContext(ctx, "training panicked", observe.KeyRun, t.shard.Manifest.Run,
				observe.KeyError, p, "stack", string(debug.Stack()))
			err = &fault.Error{Kind: fault.Internal, Class: fault.Engine,
				Err:    fault.New(fault.Internal, "the trainer panicked: %v", p),
				Remedy: "report it as a bug, with the worker's log"}
		}
	}()
	return t.train(ctx)
}

// train runs the training to its end, or to a snapshot if the shard stops.
func (t *execution) train(ctx context.Context) (err error) {
	scratch, err := newScratchFolder(t.cfg.Scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	run := t.shard.Manifest
	t.snapshots = snapshots.Manager{Store: t.cfg.Snapshots, Run: run.Run, Scratch: scratch, LoadTiny: weights.Shipped}
	rows, closeRows, err := t.rows(ctx, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRows()) }()
	index, err := training.OpenDataset(ctx, run.Config.Algorithm.Kind, rows)
	if err != nil {
		return withClass(err, fault.InvalidLine)
	}
	options := training.Options{Algorithm: *run.Config.Algorithm, Dataset: index, Threads: t.cfg.Threads}
	trainer, err := t.begin(ctx, options)
	if err != nil {
		return err
	}
	t.reportStep(training.Report{Step: trainer.Meta().Step, Steps: trainer.Meta().Steps}, trainer.Meta().Loss)
	done, err := trainer.Run(ctx, run.Config.Snapshots().Every, training.Hooks{
		Progress: func(r training.Report) { t.reportStep(r, &r.Loss) },
		Save:     t.keepSnapshot,
		Stop:     t.shard.Stopping(),
	})
	if fault.Is(err, fault.Conflict) {
		return withClass(err, fault.Diverged)
	}
	if err != nil || !done {
		return err
	}
	return t.finish(ctx, trainer)
}

// begin resumes from the snapshot that the shard's document names, or begins
// anew. If that snapshot is lost or damaged, it resumes from the newest one that
// is not.
func (t *execution) begin(ctx context.Context, o training.Options) (*training.Trainer, error) {
	candidates, err := t.resumableSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, snap := range candidates {
		trainer, err := t.snapshots.Resume(ctx, o, snap)
		if err == nil {
			t.cfg.Log.InfoContext(ctx, "training resumed",
				observe.KeyRun, t.snapshots.Run, "snapshot", snap.ID, "step", trainer.Meta().Step)
			return trainer, nil
		}
		if !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		t.cfg.Log.ErrorContext(ctx, "snapshot can't be used; trying an older one",
			observe.KeyRun, t.snapshots.Run, "snapshot", snap.ID, observe.KeyError, err)
	}
	trainer, err := t.snapshots.Begin(ctx, o)
	if fault.Is(err, fault.NotFound) { // the base model, not the input
		err = fault.WithKind(fault.Invalid, err, "begin the training")
	}
	return trainer, err
}

// resumableSnapshots returns the snapshots from which the training may resume,
// the best first.
func (t *execution) resumableSnapshots(ctx context.Context) ([]snapshot.Snapshot, error) {
	newest, _ := t.shard.Snapshot()
	if newest == nil {
		return nil, nil
	}
	all, err := t.cfg.Snapshots.List(ctx, snapshot.Filter{Run: t.snapshots.Run, Kind: snapshot.TrainState})
	if err != nil {
		return nil, err
	}
	var named, others []snapshot.Snapshot
	for _, s := range all {
		if s.ID == newest.ID {
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
	it, parseErr := dialect.Parse(dialect.Plain, line.Bytes)
	if parseErr != nil {
		return fault.WithKind(fault.Corrupt, parseErr, "read the job of run %s", t.shard.Manifest.Run)
	}
	class := fault.ClassOf(err)
	if class == "" {
		class = fault.Refused
	}
	row := dialect.AppendError(nil, dialect.Plain, it.Failure(t.job.ID, line.Place, class, err.Error()))
	t.shard.Put(t.item, row, class, worker.Tokens{})
	return nil
}

// withClass gives an Invalid or Conflict error the class. It returns others
// unchanged.
func withClass(err error, c fault.Class) error {
	if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Conflict) {
		return err
	}
	return &fault.Error{Kind: fault.KindOf(err), Class: c, Err: err}
}
