package snapshots_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training"
	"rollout/gpuworker/training/dataset"
	"rollout/gpuworker/training/snapshots"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/snapshot"
)

const (
	runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	runB = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF")
)

// bench is a store of snapshots and a dataset.
type bench struct {
	t     *testing.T
	store snapshot.Store
	rows  *dataset.Index
}

func newBench(t *testing.T) bench {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte("{\"prompt\":\"a \",\"completion\":\"b\"}\n{\"prompt\":\"c \",\"completion\":\"d\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := dataset.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	rows, err := training.OpenDataset(t.Context(), config.AlgorithmSFT, file)
	if err != nil {
		t.Fatal(err)
	}
	return bench{t, snapshot.Store{Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(), Clock: clock.System{}}, rows}
}

func tiny() (*weights.Bundle, error) {
	tok, err := tokenizer.New(nil)
	if err != nil {
		return nil, err
	}
	m, err := model.New(model.Config{Vocab: tok.Vocab(), Width: 8, Layers: 1, Heads: 1, HeadSize: 8, Hidden: 8, Context: 16, RopeBase: 10000, NormEpsilon: 1e-5}, 1)
	return &weights.Bundle{Model: m, Tokenizer: tok}, err
}

func (b bench) keeper(run identity.RunID, last int) snapshots.Manager {
	return snapshots.Manager{Store: b.store, Run: run, KeepLast: last, Scratch: filepath.Join(b.t.TempDir(), "scratch"), LoadTiny: tiny}
}

// options are a training of ten steps from a base model.
func (b bench) options(base string) training.Options {
	s := config.DefaultSFT()
	s.BaseModel.URI, s.Optimizer.LR, s.Budget.MaxSteps = base, 0.01, 10
	return training.Options{Algorithm: config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}, Dataset: b.rows, Threads: 1}
}

func (b bench) begin(k snapshots.Manager, base string) *training.Trainer {
	b.t.Helper()
	t, err := k.Begin(b.t.Context(), b.options(base))
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func (b bench) save(k snapshots.Manager, t *training.Trainer) snapshot.Snapshot {
	b.t.Helper()
	snap, err := k.Save(b.t.Context(), t)
	if err != nil {
		b.t.Fatal(err)
	}
	return snap
}

func TestATrainingGoesOnFromItsLatestSnapshotToTheSameOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	whole, broken := b.keeper(runA, 0), b.keeper(runB, 0)
	var want snapshot.Snapshot
	if _, err := b.begin(whole, config.ModelTiny).Run(t.Context(), 0, training.Hooks{Save: func(_ context.Context, tr *training.Trainer) (err error) {
		want, err = whole.Save(t.Context(), tr)
		return err
	}}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := broken.Latest(t.Context()); ok || err != nil {
		t.Errorf("a run without snapshots has a latest one (%v)", err)
	}
	tr := b.begin(broken, config.ModelTiny)
	for range 10 {
		if _, err := tr.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.save(broken, tr)
		latest, ok, err := broken.Latest(t.Context())
		if !ok || err != nil {
			t.Fatalf("there is no latest snapshot: %v", err)
		}
		if tr, err = broken.Resume(t.Context(), b.options(config.ModelTiny), latest); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.save(broken, tr); got.ID != want.ID || !strings.Contains(string(got.Meta), `"step":10,"steps":10`) {
		t.Errorf("it is %s (%s), without a break it is %s", got.ID, got.Meta, want.ID)
	}
	if left, err := os.ReadDir(broken.Scratch); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestOnlyTheLastSnapshotsStay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.keeper(runA, 2)
	tr := b.begin(k, config.ModelTiny)
	var ids []string
	for range 4 {
		if _, err := tr.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.save(k, tr).ID)
	}
	all, err := b.store.List(t.Context(), snapshot.Filter{Run: runA})
	if err != nil || len(all) != 2 || all[0].ID != ids[3] || all[1].ID != ids[2] {
		t.Errorf("%d snapshots stay, %v", len(all), err)
	}
}

func TestATrainingBeginsWithASnapshotOfAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.keeper(runA, 0)
	tr := b.begin(k, config.ModelTiny)
	if _, err := tr.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	uri := config.SnapshotPrefix + b.save(k, tr).ID
	other := b.keeper(runB, 0)
	next := b.begin(other, uri)
	if taken, _ := next.Steps(); taken != 0 {
		t.Errorf("it begins at step %d", taken)
	}
	kept := b.save(other, next)
	if _, err := b.store.Prune(t.Context(), runA, snapshot.Retention{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Resume(t.Context(), b.options(uri), kept); err != nil {
		t.Errorf("without its base it does not go on: %v", err)
	}
	if _, err := other.Begin(t.Context(), b.options(uri)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "base model "+uri+": snapshot not found") {
		t.Errorf("without its base it begins: %v", err)
	}
}

func TestAProcessWithoutTheBuiltInModelRefusesIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.keeper(runA, 0)
	k.LoadTiny = nil
	if _, err := k.Begin(t.Context(), b.options(config.ModelTiny)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "base model rollout/tiny: this process has no such model") {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNoTrainingsSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.keeper(runA, 0)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "x"), []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[snapshot.Kind]string{"buffer": `is of kind "buffer"`, snapshot.TrainState: "the state has no model.safetensors"} {
		snap, err := b.store.Save(t.Context(), os.DirFS(folder), snapshot.Details{Run: runA, Kind: kind, Algorithm: "sft"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Resume(t.Context(), b.options(config.ModelTiny), snap); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
		if err := os.WriteFile(filepath.Join(folder, "z"), nil, 0o600); err != nil { // another content
			t.Fatal(err)
		}
	}
}
