package kind

import (
	"context"
	"encoding/json"
	"fmt"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// train trains a model on the rows of its only input. The run is a single item,
// so that it has one shard, and its executor reads the rows.
func train() Kind {
	return Kind{
		Name: config.KindTrain, Executor: config.ExecutorTrain,
		Complete: completeTraining, Job: trainingJob, Artifacts: trainingArtifacts,
		OneStream: true, Trains: true, ReadsInput: true, Blameless: true,
	}
}

// completeTraining is Kind.Complete of a training. Its model is the base model,
// its pool the one that trains, and its input one dataset.
func completeTraining(ctx context.Context, m *record.Manifest, at Site) error {
	if m.Config.Algorithm == nil {
		return fault.New(fault.Invalid, "a training has no algorithm")
	}
	if len(m.Inputs) != 1 {
		return fault.New(fault.Invalid, "a training has one dataset, not %d", len(m.Inputs))
	}
	pool, declared := at.Deployment.TrainPool()
	if !declared && at.Deployment.Cloud.Configured() { // no queue and no machine stands for it
		return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "the installation has no pool that trains"),
			Remedy: fmt.Sprintf("add a [[pool]] with executor = %q and model = %q to rollout.toml, and deploy it",
				config.ExecutorTrain, config.ModelTiny)}
	}
	base := m.Config.Algorithm.Common().BaseModel.URI
	m.Pool, m.ModelURI, m.ModelID, m.Dialect = pool.Name, base, identity.Model(base, "").String(), string(dialect.Plain)
	head, err := at.Head(ctx, m.Inputs[0])
	if err != nil {
		return err
	}
	if len(head) == 0 {
		return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%s has no rows", m.Inputs[0].Label()),
			Remedy: "put rows into the .jsonl beside its config: a training of kind " + m.Config.Algorithm.Kind +
				" learns from them"}
	}
	return fault.Wrap(recognize(m.Inputs[0], head), "%s", m.Inputs[0].Label())
}

// trainingJob is Kind.Job of a training: its prompt names the rows.
func trainingJob(m record.Manifest, rows record.Ranges, digest identity.ContentID) (record.Job, error) {
	if m.Config.Algorithm == nil || len(m.Inputs) != 1 {
		return record.Job{}, fault.New(fault.Corrupt, "the manifest of run %s is not that of a training", m.Run)
	}
	name := m.Inputs[0].Label()
	return record.Job{ID: m.Name, Prompt: "train " + m.Config.Algorithm.Kind + " on " + name,
		Dataset: record.Dataset{Key: rows.Key, Version: rows.Version, Size: rows.Size, Name: name,
			Digest: digest.String()}}, nil
}

// maxTrained bounds the row of a training, in bytes. maxFiles bounds its files.
const (
	maxTrained = 1 << 20
	maxFiles   = 16
)

// trainingArtifacts is Kind.Artifacts of a training. It publishes the training's
// files, and adds its result to the summary: the row it committed or, if the run
// ended first, the step and loss of its last snapshot.
func trainingArtifacts(ctx context.Context, e Ended, sum *record.Summary) error {
	m := e.Manifest
	b, err := input.ReadObject(ctx, e.Blobs, record.OutputKey(m.Run, record.CompletionsFile), maxTrained)
	if err != nil {
		return err
	}
	a := m.Config.Algorithm
	out := record.Trained{ID: m.Name, Algorithm: a.Kind, BaseModel: a.Common().BaseModel.URI}
	if len(b) == 0 {
		if s := e.Snapshot; s != nil {
			out.Steps, out.Snapshot, out.TrainLoss = s.Step, s.ID, s.Loss
		}
		sum.Training = &out
		return nil
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return fault.WithKind(fault.Corrupt, err, "read the row of a training")
	}
	if len(out.Files) > maxFiles {
		return fault.New(fault.Corrupt, "the row of a training names %d files", len(out.Files))
	}
	for _, file := range out.Files {
		if err := e.publishFile(ctx, file); err != nil {
			return err
		}
	}
	sum.Training = &out
	return nil
}

// publishFile copies one file of a training to the files that users read. The
// row comes from a worker, so only known file names become keys.
func (e Ended) publishFile(ctx context.Context, file record.TrainedFile) error {
	if file.Name != record.ModelFile && file.Name != record.CurveFile {
		return fault.New(fault.Corrupt, "the row of a training names the file %.64q", file.Name)
	}
	if _, ok := identity.ParseContentID(file.Content); !ok {
		return fault.New(fault.Corrupt, "the row of a training names no content of %s", file.Name)
	}
	run := e.Manifest.Run
	from, to := record.TrainingFileKey(run, file.Content), record.OutputKey(run, file.Name)
	info, err := e.Blobs.Stat(ctx, from, "")
	if fault.Is(err, fault.NotFound) {
		if _, err := e.Blobs.Stat(ctx, to, ""); err == nil { // published before
			return nil
		}
	}
	if err == nil && info.Size != file.Length {
		err = fault.New(fault.Corrupt, "%s has %d bytes, not %d", from, info.Size, file.Length)
	}
	if err == nil {
		_, err = e.Blobs.Copy(ctx, to, from)
	}
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
