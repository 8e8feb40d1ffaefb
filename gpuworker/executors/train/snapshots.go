package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"rollout/gpuworker/training"
	"rollout/gpuworker/worker"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// finalLabel labels the snapshot at the training's end. Labelled snapshots are
// not pruned by age.
const finalLabel = "final"

// keepSnapshot saves a snapshot as the training's hook. A failure during the
// training is only logged: the training continues, and a later holder would
// repeat more steps. A failure at the end or at a stop is returned.
func (t *execution) keepSnapshot(ctx context.Context, trainer *training.Trainer) error {
	began := t.cfg.Clock.Now()
	err := t.saveSnapshot(ctx, trainer)
	t.addSnapshot(t.cfg.Clock.Now().Sub(began))
	if err == nil || ctx.Err() != nil || fault.Is(err, fault.Fenced) || trainer.Done() || t.shard.Stopped() {
		return err
	}
	t.cfg.Log.WarnContext(ctx, "snapshot can't be saved; the training continues",
		observe.KeyRun, t.snapshots.Run, "step", trainer.Meta().Step, observe.KeyError, err)
	return nil
}

// saveSnapshot saves a snapshot, names it in the shard's document, and prunes
// older ones.
func (t *execution) saveSnapshot(ctx context.Context, trainer *training.Trainer) error {
	meta := trainer.Meta()
	text, err := json.Marshal(meta)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode the meta data of a snapshot")
	}
	d := snapshot.Details{Run: t.snapshots.Run, Kind: snapshot.TrainState, Algorithm: trainer.Algorithm(), Meta: text}
	if trainer.Done() {
		d.Label = finalLabel
	}
	var snap snapshot.Snapshot
	err = t.withState(trainer, func(folder string) (err error) {
		snap, err = t.cfg.Snapshots.Save(ctx, os.DirFS(folder), d)
		return err
	})
	if err != nil {
		return err
	}
	err = t.shard.SaveSnapshot(shard.Snapshot{ID: snap.ID, Step: meta.Step, Steps: meta.Steps, Loss: meta.Loss})
	if err != nil {
		return err
	}
	t.cfg.Log.InfoContext(ctx, "snapshot saved", observe.KeyRun, t.snapshots.Run, "snapshot", snap.ID, "step", meta.Step)
	_, err = t.cfg.Snapshots.Prune(ctx, t.snapshots.Run,
		snapshot.Retention{KeepLast: t.shard.Manifest.Config.Snapshots().KeepLast, KeepLabeled: true})
	return err
}

// withState calls f with a folder of the trainer's state, then removes it.
func (t *execution) withState(trainer *training.Trainer, f func(folder string) error) (err error) {
	folder, err := os.MkdirTemp(t.snapshots.Scratch, "state-*")
	if err != nil {
		return diskFault(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := trainer.Save(folder); err != nil {
		return err
	}
	return f(folder)
}

// finish puts the files that users get, and the training's row.
func (t *execution) finish(ctx context.Context, trainer *training.Trainer) error {
	e, err := trainer.Evaluate(ctx)
	if err != nil {
		return err
	}
	a := t.shard.Manifest.Config.Algorithm
	newest, _ := t.shard.Snapshot()
	meta := trainer.Meta()
	row := record.Trained{ID: t.job.ID, Algorithm: a.Kind, BaseModel: a.Common().BaseModel.URI, Steps: meta.Step,
		Snapshot: newest.ID, TrainLoss: meta.Loss, Rows: e.Rows, Loss: e.Loss, Accuracy: e.Accuracy}
	err = t.withState(trainer, func(folder string) error {
		f, err := os.Open(filepath.Join(folder, record.ModelFile))
		if err != nil {
			return diskFault(err)
		}
		defer f.Close() // opened for reading: an error of Close loses nothing
		file, err := t.putFile(ctx, record.ModelFile, f)
		row.Files = append(row.Files, file)
		return err
	})
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%s: %s, %d steps", t.job.ID, a.Kind, meta.Step)
	file, err := t.putFile(ctx, record.CurveFile, bytes.NewReader(trainer.Curve().SVG(title)))
	if err != nil {
		return err
	}
	row.Files = append(row.Files, file)
	text, err := json.Marshal(row)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode the row of a training")
	}
	t.shard.Put(t.item, append(text, '\n'), "", worker.Tokens{})
	return nil
}

// putFile puts a file under the key where finalize reads it.
func (t *execution) putFile(ctx context.Context, name string, r io.ReadSeeker) (record.TrainedFile, error) {
	h := identity.NewHasher()
	n, err := io.Copy(h, r)
	if err == nil {
		_, err = r.Seek(0, io.SeekStart)
	}
	if err != nil {
		return record.TrainedFile{}, diskFault(err)
	}
	f := record.TrainedFile{Name: name, Content: h.Sum().String(), Length: n}
	_, err = t.cfg.Blobs.Put(ctx, record.TrainingFileKey(t.snapshots.Run, f.Content), r, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // an object of this name has the same bytes
		err = nil
	}
	return f, err
}
