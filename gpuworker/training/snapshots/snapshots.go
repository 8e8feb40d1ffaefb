// Package snapshots saves the states of a training run as snapshots of an
// installation, and starts or resumes a training from them.
//
// It connects package training, which saves states to folders, with package
// shared/snapshot, which stores folders in a bucket. Files pass through a scratch
// folder that it removes afterwards. It never decides when to save a state, and
// never returns a trainer that it could not restore.
package snapshots

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"

	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// Manager saves and loads the snapshots of one run.
type Manager struct {
	Store    snapshot.Store
	Run      identity.RunID
	KeepLast int    // number of newest snapshots to keep; 0: all
	Scratch  string // folder for temporary files, used by this process only
	// LoadTiny loads config.ModelTiny, the model that ships with rollout. If it is
	// nil, that base model is refused.
	LoadTiny func() (*weights.Bundle, error)
}

// Save saves the trainer's state as a snapshot, and then removes the run's older
// snapshots as KeepLast says. Equal states have the same snapshot id everywhere.
func (k Manager) Save(ctx context.Context, t *training.Trainer) (_ snapshot.Snapshot, err error) {
	folder, err := k.folder()
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := t.Save(folder); err != nil {
		return snapshot.Snapshot{}, err
	}
	meta, err := json.Marshal(t.Meta())
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	details := snapshot.Details{Run: k.Run, Kind: snapshot.TrainState, Algorithm: t.Algorithm(), Meta: meta}
	snap, err := k.Store.Save(ctx, os.DirFS(folder), details)
	if err != nil || k.KeepLast < 1 {
		return snap, err
	}
	_, err = k.Store.Prune(ctx, k.Run, snapshot.Retention{KeepLast: k.KeepLast, KeepLabeled: true})
	return snap, err
}

// Latest returns the run's snapshot with the most steps. ok is false if the run
// has no snapshot.
func (k Manager) Latest(ctx context.Context) (_ snapshot.Snapshot, ok bool, err error) {
	all, err := k.Store.List(ctx, snapshot.Filter{Run: k.Run, Kind: snapshot.TrainState})
	if err != nil || len(all) == 0 {
		return snapshot.Snapshot{}, false, err
	}
	return slices.MaxFunc(all, func(a, b snapshot.Snapshot) int { return cmp.Compare(steps(a), steps(b)) }), true, nil
}

// steps returns the number of steps in the snapshot's metadata, or -1 if they have
// another format.
func steps(s snapshot.Snapshot) int {
	m := record.TrainingMeta{Step: -1}
	if json.Unmarshal(s.Meta, &m) != nil {
		return -1
	}
	return m.Step
}

// Begin returns a trainer at step 0 with the base model that the settings name.
func (k Manager) Begin(ctx context.Context, o training.Options) (t *training.Trainer, err error) {
	if o.Base, err = k.base(ctx, o.Algorithm.Common().BaseModel.URI); err != nil {
		return nil, err
	}
	return training.New(o)
}

// base loads the base model uri.
func (k Manager) base(ctx context.Context, uri string) (base training.Base, err error) {
	id, isSnapshot := strings.CutPrefix(uri, config.SnapshotPrefix)
	if !isSnapshot {
		if k.LoadTiny == nil {
			return base, fault.New(fault.Invalid, "base model %s: this process cannot load the built-in model", uri)
		}
		tiny, err := k.LoadTiny()
		if err != nil {
			return base, fault.Wrap(err, "base model %s", uri)
		}
		return training.Base{URI: uri, Model: tiny.Model, Tokenizer: tiny.Tokenizer}, nil
	}
	snap, err := k.Store.Find(ctx, id)
	if err != nil {
		return base, fault.WithKind(fault.Invalid, err, "base model %s", uri)
	}
	err = k.withFiles(ctx, snap, func(folder string) error {
		base, err = training.LoadBase(folder, uri)
		return err
	})
	return base, fault.Wrap(err, "base model %s", uri)
}

// Resume returns a trainer with the state of a snapshot. The base model that the
// settings name need not exist any more.
func (k Manager) Resume(
	ctx context.Context, o training.Options, snap snapshot.Snapshot,
) (t *training.Trainer, err error) {
	err = k.withFiles(ctx, snap, func(folder string) error {
		if o.Base, err = training.LoadBase(folder, o.Algorithm.Common().BaseModel.URI); err != nil {
			return err
		}
		if t, err = training.New(o); err != nil {
			return err
		}
		return t.Restore(folder)
	})
	if err != nil {
		return nil, fault.Wrap(err, "resume from snapshot %s", snap.ID)
	}
	return t, nil
}

// withFiles calls f with a folder of the snapshot's files, and removes the folder
// afterwards.
func (k Manager) withFiles(ctx context.Context, snap snapshot.Snapshot, f func(folder string) error) (err error) {
	if snap.Kind != snapshot.TrainState {
		return fault.New(fault.Invalid, "snapshot %s is of kind %q: use one of kind %q",
			snap.ID, snap.Kind, snapshot.TrainState)
	}
	folder, err := k.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	inside := folder + "/state" // Restore creates it
	if err := k.Store.Restore(ctx, snap, inside); err != nil {
		return err
	}
	return f(inside)
}

// folder creates an empty folder in Scratch. The caller removes it.
func (k Manager) folder() (string, error) {
	if err := os.MkdirAll(k.Scratch, 0o755); err != nil {
		return "", fault.WithKind(fault.Denied, err, "create a folder for a training's state")
	}
	folder, err := os.MkdirTemp(k.Scratch, "state-*")
	return folder, fault.WithKind(fault.Denied, err, "create a folder for a training's state")
}
