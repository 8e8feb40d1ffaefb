package finalize

import (
	"context"
	"encoding/json"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// maxTrained bounds the row of a training, in bytes. maxFiles bounds its files.
const (
	maxTrained = 1 << 20
	maxFiles   = 16
)

// training publishes the files of a training and returns its result: the row it
// committed or, if the run ended first, the step and loss of its last snapshot.
func (f *Finalizer) training(ctx context.Context, m record.Manifest, t totals) (*record.Trained, error) {
	b, err := input.ReadObject(ctx, f.Blobs, record.OutputKey(m.Run, record.CompletionsFile), maxTrained)
	if err != nil {
		return nil, err
	}
	a := m.Config.Algorithm
	out := record.Trained{ID: m.Name, Algorithm: a.Kind, BaseModel: a.Common().BaseModel.URI}
	if len(b) == 0 {
		if t.snapshot != nil {
			out.Steps, out.Snapshot, out.TrainLoss = t.snapshot.Step, t.snapshot.ID, t.snapshot.Loss
		}
		return &out, nil
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "read the row of a training")
	}
	if len(out.Files) > maxFiles {
		return nil, fault.New(fault.Corrupt, "the row of a training names %d files", len(out.Files))
	}
	for _, file := range out.Files {
		if err := f.publishFile(ctx, m.Run, file); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// publishFile copies one file of a training to the files that users read. The
// row comes from a worker, so only known file names become keys.
func (f *Finalizer) publishFile(ctx context.Context, run identity.RunID, file record.TrainedFile) error {
	if file.Name != record.ModelFile && file.Name != record.CurveFile {
		return fault.New(fault.Corrupt, "the row of a training names the file %.64q", file.Name)
	}
	if _, ok := identity.ParseContentID(file.Content); !ok {
		return fault.New(fault.Corrupt, "the row of a training names no content of %s", file.Name)
	}
	from, to := record.TrainingFileKey(run, file.Content), record.OutputKey(run, file.Name)
	info, err := f.Blobs.Stat(ctx, from, "")
	if fault.Is(err, fault.NotFound) {
		if _, err := f.Blobs.Stat(ctx, to, ""); err == nil { // published before
			return nil
		}
	}
	if err == nil && info.Size != file.Length {
		err = fault.New(fault.Corrupt, "%s has %d bytes, not %d", from, info.Size, file.Length)
	}
	if err == nil {
		_, err = f.Blobs.Copy(ctx, to, from)
	}
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
