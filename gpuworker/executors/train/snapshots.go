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
	"strconv"

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

// finalLabel is the label of the snapshot of the training's end, which nobody
// prunes by its age.
const finalLabel = "final"

// keep makes a snapshot, names it in the shard's document, and removes older
// ones. Between two others it may fail: the training goes on, and would have to
// take some steps again if it were lost.
func (t *execution) keep(ctx context.Context, trainer *training.Trainer) error {
	began := t.cfg.Clock.Now()
	err := t.save(ctx, trainer)
	took := t.cfg.Clock.Now().Sub(began)
	t.snapshotTook(took)
	if err == nil || ctx.Err() != nil || fault.Is(err, fault.Fenced) || trainer.Done() || t.shard.Stopped() {
		return err
	}
	t.cfg.Log.WarnContext(ctx, "snapshot can't be kept; the training goes on", observe.KeyRun, t.keeper.Run, "step", trainer.Meta().Step, observe.KeyError, err)
	return nil
}

func (t *execution) save(ctx context.Context, trainer *training.Trainer) error {
	meta := trainer.Meta()
	text, err := json.Marshal(meta)
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode what is known of a state")
	}
	d := snapshot.Details{Run: t.keeper.Run, Kind: snapshot.TrainState, Algorithm: trainer.Algorithm(), Meta: text}
	if trainer.Done() {
		d.Label = finalLabel
	}
	var snap snapshot.Snapshot
	err = t.state(trainer, func(folder string) (err error) {
		snap, err = t.cfg.Snapshots.Save(ctx, os.DirFS(folder), d)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.shard.SaveSnapshot(shard.Snapshot{ID: snap.ID, Step: meta.Step, Steps: meta.Steps, Loss: meta.Loss}); err != nil {
		return err
	}
	t.cfg.Log.InfoContext(ctx, "snapshot kept", observe.KeyRun, t.keeper.Run, "snapshot", snap.ID, "step", meta.Step)
	_, err = t.cfg.Snapshots.Prune(ctx, t.keeper.Run, snapshot.Retention{KeepLast: t.shard.Manifest.Config.Snapshots().KeepLast, KeepLabeled: true})
	return err
}

// state calls f with a folder of the trainer's state, which is gone afterwards.
func (t *execution) state(trainer *training.Trainer, f func(folder string) error) (err error) {
	folder, err := os.MkdirTemp(t.keeper.Scratch, "state-*")
	if err != nil {
		return unwritable(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := trainer.Save(folder); err != nil {
		return err
	}
	return f(folder)
}

// finish leaves the files that users get, and the row.
func (t *execution) finish(ctx context.Context, trainer *training.Trainer) error {
	e, err := trainer.Evaluate(ctx)
	if err != nil {
		return err
	}
	a := t.shard.Manifest.Config.Algorithm
	kept, _ := t.shard.Snapshot()
	meta := trainer.Meta()
	row := record.Trained{ID: t.job.ID, Algorithm: a.Kind, BaseModel: a.Common().BaseModel.URI, Steps: meta.Step, Snapshot: kept.ID,
		TrainLoss: meta.Loss, Rows: e.Rows, Loss: e.Loss, Accuracy: e.Accuracy}
	err = t.state(trainer, func(folder string) error {
		f, err := os.Open(filepath.Join(folder, record.ModelFile))
		if err != nil {
			return unwritable(err)
		}
		defer f.Close() // read only: nothing can be lost
		file, err := t.leave(ctx, record.ModelFile, f)
		row.Files = append(row.Files, file)
		return err
	})
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%s: %s, %d steps", t.job.ID, a.Kind, meta.Step)
	file, err := t.leave(ctx, record.CurveFile, bytes.NewReader(trainer.Curve().SVG(title)))
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

// leave puts a file where finalize finds it.
func (t *execution) leave(ctx context.Context, name string, r io.ReadSeeker) (record.TrainedFile, error) {
	h := identity.NewHasher()
	n, err := io.Copy(h, r)
	if err == nil {
		_, err = r.Seek(0, io.SeekStart)
	}
	if err != nil {
		return record.TrainedFile{}, unwritable(err)
	}
	f := record.TrainedFile{Name: name, Content: h.Sum().String(), Length: n}
	_, err = t.cfg.Blobs.Put(ctx, record.TrainingFileKey(t.keeper.Run, f.Content), r, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // it has the same bytes
		err = nil
	}
	return f, err
}

func number(n int) string { return strconv.Itoa(n) }
