package twoclouds

import (
	"path/filepath"
	"testing"

	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training"
	"rollout/gpuworker/training/dataset"
	"rollout/gpuworker/training/snapshots"
	"rollout/localstack/scenarios"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host/hosttest"
	"rollout/shared/snapshot"
)

const (
	trainingSteps = 10
	stoppedAt     = 5
)

// tenSteps are the options of a training of ten steps of the model that ships with rollout.
func tenSteps(t *testing.T) training.Options {
	t.Helper()
	file, err := dataset.OpenFile(scenarios.Write(t, t.TempDir(), "rows.jsonl", `{"prompt":"And the light ",`+
		`"completion":"was good."}`+"\n"+`{"prompt":"And there was ","completion":"evening."}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // read only
	rows, err := training.OpenDataset(t.Context(), config.AlgorithmSFT, file)
	if err != nil {
		t.Fatal(err)
	}
	s := config.DefaultSFT()
	s.BaseModel.URI, s.Optimizer.LR, s.Budget.MaxSteps, s.Minibatch = config.ModelTiny, 1e-3, trainingSteps, 1
	return training.Options{Algorithm: config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}, Dataset: rows, Threads: 1}
}

// keep saves the state of a trainer in a store of snapshots after so many more steps.
func keep(t *testing.T, m snapshots.Manager, trainer *training.Trainer, steps int) snapshot.Snapshot {
	t.Helper()
	for range steps {
		if _, err := trainer.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := m.Save(t.Context(), trainer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A training stops after five steps on one cloud. It goes on from a copy of its snapshot on
// the other one, and ends with the snapshot of ten uninterrupted steps.
func TestTrainingGoesOnFromACopyOfItsSnapshot(t *testing.T) {
	t.Parallel()
	p, o := hosttest.New(), tenSteps(t)
	in := func(blobs blob.Store) snapshots.Manager {
		return snapshots.Manager{Store: snapshot.Store{Blobs: blobs, Docs: hosttest.New().Docs, Clock: p.Clock},
			Run: identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVA"), Scratch: filepath.Join(t.TempDir(), "scratch"),
			LoadTiny: weights.Shipped}
	}
	begin := func(m snapshots.Manager) *training.Trainer {
		trainer, err := m.Begin(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return trainer
	}
	whole := in(p.Blobs)
	want := keep(t, whole, begin(whole), trainingSteps)
	betweenClouds(t, func(t *testing.T, from, to blob.Store) {
		here, there := in(from), in(to)
		half := keep(t, here, begin(here), stoppedAt)
		if n := copyAll(t, from, to, "cas/"); n != 1 {
			t.Fatalf("%d objects were copied, want the snapshot's", n)
		}
		trainer, err := there.Resume(t.Context(), o, half)
		if err != nil {
			t.Fatal(err)
		}
		if step, _ := trainer.Steps(); step != stoppedAt {
			t.Fatalf("it goes on at step %d, want %d", step, stoppedAt)
		}
		if got := keep(t, there, trainer, trainingSteps-stoppedAt); got.ID != want.ID {
			t.Errorf("it ends with the snapshot %s, and uninterrupted with %s", got.ID, want.ID)
		}
	})
}
