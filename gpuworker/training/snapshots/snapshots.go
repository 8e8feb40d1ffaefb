// Package keep keeps the states of a training as snapshots, and begins or goes
// on from them.
//
// It is what lies between a trainer, which knows folders, and the snapshots of
// an installation, which know buckets. It never decides when a state is worth
// keeping, and never changes a trainer that it could not restore.
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
	"rollout/shared/snapshot"
)

// Manager keeps the states of one run.
type Manager struct {
	Store    snapshot.Store
	Run      identity.RunID
	KeepLast int    // the newest so many are kept; 0 keeps all
	Scratch  string // a folder for files on their way; of this process alone
	// LoadTiny loads config.ModelTiny, the model that comes with rollout; nil
	// refuses it.
	LoadTiny func() (*weights.Bundle, error)
}

// Save keeps the trainer's state as a snapshot, whose id is the same for equal
// states anywhere, and then removes the run's older ones.
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
	snap, err := k.Store.Save(ctx, os.DirFS(folder), snapshot.Details{Run: k.Run, Kind: snapshot.TrainState, Algorithm: t.Algorithm(), Meta: meta})
	if err != nil || k.KeepLast < 1 {
		return snap, err
	}
	_, err = k.Store.Prune(ctx, k.Run, snapshot.Retention{KeepLast: k.KeepLast, KeepLabeled: true})
	return snap, err
}

// Latest returns the run's snapshot with the most steps; ok is false if it has
// none.
func (k Manager) Latest(ctx context.Context) (_ snapshot.Snapshot, ok bool, err error) {
	all, err := k.Store.List(ctx, snapshot.Filter{Run: k.Run, Kind: snapshot.TrainState})
	if err != nil || len(all) == 0 {
		return snapshot.Snapshot{}, false, err
	}
	return slices.MaxFunc(all, func(a, b snapshot.Snapshot) int { return cmp.Compare(steps(a), steps(b)) }), true, nil
}

// steps is what the snapshot's document says; -1 if it is not one of ours.
func steps(s snapshot.Snapshot) int {
	m := training.Meta{Step: -1}
	if json.Unmarshal(s.Meta, &m) != nil {
		return -1
	}
	return m.Step
}

// Begin starts a training with its base model.
func (k Manager) Begin(ctx context.Context, o training.Options) (t *training.Trainer, err error) {
	if o.Base, err = k.base(ctx, o.Algorithm.Common().BaseModel.URI); err != nil {
		return nil, err
	}
	return training.New(o)
}

// base loads the model that settings name.
func (k Manager) base(ctx context.Context, uri string) (base training.Base, err error) {
	id, isSnapshot := strings.CutPrefix(uri, config.SnapshotPrefix)
	if !isSnapshot {
		if k.LoadTiny == nil {
			return base, fault.New(fault.Invalid, "base model %s: this process has no such model", uri)
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
	err = k.restored(ctx, snap, func(folder string) error {
		base, err = training.LoadBase(folder, uri)
		return err
	})
	return base, fault.Wrap(err, "base model %s", uri)
}

// Resume goes on from a snapshot. Its base model need not be there any more.
func (k Manager) Resume(ctx context.Context, o training.Options, snap snapshot.Snapshot) (t *training.Trainer, err error) {
	err = k.restored(ctx, snap, func(folder string) error {
		if o.Base, err = training.LoadBase(folder, o.Algorithm.Common().BaseModel.URI); err != nil {
			return err
		}
		if t, err = training.New(o); err != nil {
			return err
		}
		return t.Restore(folder)
	})
	if err != nil {
		return nil, fault.Wrap(err, "go on from snapshot %s", snap.ID)
	}
	return t, nil
}

// restored calls f with a folder of the snapshot's files, which is gone
// afterwards.
func (k Manager) restored(ctx context.Context, snap snapshot.Snapshot, f func(folder string) error) (err error) {
	if snap.Kind != snapshot.TrainState {
		return fault.New(fault.Invalid, "snapshot %s is of kind %q: a training's is %q", snap.ID, snap.Kind, snapshot.TrainState)
	}
	folder, err := k.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	inside := folder + "/state" // Restore makes it
	if err := k.Store.Restore(ctx, snap, inside); err != nil {
		return err
	}
	return f(inside)
}

func (k Manager) folder() (string, error) {
	if err := os.MkdirAll(k.Scratch, 0o755); err != nil {
		return "", fault.WithKind(fault.Denied, err, "make a folder for a training's state")
	}
	folder, err := os.MkdirTemp(k.Scratch, "state-*")
	return folder, fault.WithKind(fault.Denied, err, "make a folder for a training's state")
}
