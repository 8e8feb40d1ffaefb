package snapshots_test

import (
	"context"
	"encoding/json"
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
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

const (
	runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	runB = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF")
)

// fixture is a store of snapshots and a dataset.
type fixture struct {
	t     *testing.T
	store snapshot.Store
	rows  *dataset.Index
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	const content = "{\"prompt\":\"a \",\"completion\":\"b\"}\n{\"prompt\":\"c \",\"completion\":\"d\"}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
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
	store := snapshot.Store{
		Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(), Clock: clock.System{},
	}
	return fixture{t, store, rows}
}

func tiny() (*weights.Bundle, error) {
	tok, err := tokenizer.New(nil)
	if err != nil {
		return nil, err
	}
	m, err := model.New(model.Config{
		Vocab: tok.Vocab(), Width: 8, Layers: 1, Heads: 1, HeadSize: 8, Hidden: 8, Context: 16,
		RopeBase: 10000, NormEpsilon: 1e-5,
	}, 1)
	return &weights.Bundle{Model: m, Tokenizer: tok}, err
}

func (b fixture) manager(run identity.RunID, last int) snapshots.Manager {
	return snapshots.Manager{
		Store: b.store, Run: run, KeepLast: last, Scratch: filepath.Join(b.t.TempDir(), "scratch"), LoadTiny: tiny,
	}
}

// options returns the options of a training of ten steps from a base model.
func (b fixture) options(base string) training.Options {
	s := config.DefaultSFT()
	s.BaseModel.URI, s.Optimizer.LR, s.Budget.MaxSteps = base, 0.01, 10
	algorithm := config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}
	return training.Options{Algorithm: algorithm, Dataset: b.rows, Threads: 1}
}

func (b fixture) begin(k snapshots.Manager, base string) *training.Trainer {
	b.t.Helper()
	t, err := k.Begin(b.t.Context(), b.options(base))
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func (b fixture) save(k snapshots.Manager, t *training.Trainer) snapshot.Snapshot {
	b.t.Helper()
	snap, err := k.Save(b.t.Context(), t)
	if err != nil {
		b.t.Fatal(err)
	}
	return snap
}

func TestTrainingResumedAfterEachStepEndsWithTheSameSnapshot(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	whole, resumed := b.manager(runA, 0), b.manager(runB, 0)
	var want snapshot.Snapshot
	hooks := training.Hooks{Save: func(_ context.Context, tr *training.Trainer) (err error) {
		want, err = whole.Save(t.Context(), tr)
		return err
	}}
	if _, err := b.begin(whole, config.ModelTiny).Run(t.Context(), 0, hooks); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := resumed.Latest(t.Context()); ok || err != nil {
		t.Errorf("a run without snapshots has a latest one (%v)", err)
	}
	tr := b.begin(resumed, config.ModelTiny)
	for range 10 {
		if _, err := tr.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.save(resumed, tr)
		latest, ok, err := resumed.Latest(t.Context())
		if !ok || err != nil {
			t.Fatalf("the run has no latest snapshot: %v", err)
		}
		if tr, err = resumed.Resume(t.Context(), b.options(config.ModelTiny), latest); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.save(resumed, tr); got.ID != want.ID || !strings.Contains(string(got.Meta), `"step":10,"steps":10`) {
		t.Errorf("the last snapshot is %s (%s), want %s as without resuming", got.ID, got.Meta, want.ID)
	}
	var meta record.TrainingMeta
	if err := json.Unmarshal(want.Meta, &meta); err != nil || meta.Curve == nil {
		t.Fatalf("the metadata are %s, %v", want.Meta, err)
	}
	if c := meta.Curve; len(c.Steps) != 10 || c.Steps[9] != 10 || c.Loss[9] != float32(*meta.Loss) || len(c.LR) != 10 ||
		c.LR[9] <= 0 {
		t.Errorf("the curve is %+v", *c)
	}
	if left, err := os.ReadDir(resumed.Scratch); err != nil || len(left) > 0 {
		t.Errorf("the scratch folder has %v, %v; want it empty", left, err)
	}
}

func TestSaveKeepsOnlyTheLastSnapshots(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	k := b.manager(runA, 2)
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
		t.Errorf("%d snapshots are left, %v; want the last 2", len(all), err)
	}
}

func TestTrainingBeginsFromAnotherRunsSnapshot(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	k := b.manager(runA, 0)
	tr := b.begin(k, config.ModelTiny)
	if _, err := tr.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	uri := config.SnapshotPrefix + b.save(k, tr).ID
	other := b.manager(runB, 0)
	next := b.begin(other, uri)
	if taken, _ := next.Steps(); taken != 0 {
		t.Errorf("the training begins at step %d, want 0", taken)
	}
	kept := b.save(other, next)
	if _, err := b.store.Prune(t.Context(), runA, snapshot.Retention{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Resume(t.Context(), b.options(uri), kept); err != nil {
		t.Errorf("resuming after the base model was removed: %v", err)
	}
	_, err := other.Begin(t.Context(), b.options(uri))
	want := "base model " + uri + ": snapshot not found"
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("beginning after the base model was removed: %v, want %q", err, want)
	}
}

func TestBuiltInModelIsRefusedWithoutLoadTiny(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	k := b.manager(runA, 0)
	k.LoadTiny = nil
	_, err := k.Begin(t.Context(), b.options(config.ModelTiny))
	const want = "base model rollout/tiny: this process cannot load the built-in model"
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestResumeRefusesOtherSnapshots(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	k := b.manager(runA, 0)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "x"), []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[snapshot.Kind]string{
		"buffer": `is of kind "buffer"`, snapshot.TrainState: "the state has no model.safetensors",
	} {
		details := snapshot.Details{Run: runA, Kind: kind, Algorithm: "sft"}
		snap, err := b.store.Save(t.Context(), os.DirFS(folder), details)
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.Resume(t.Context(), b.options(config.ModelTiny), snap)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kind, err, want)
		}
		if err := os.WriteFile(filepath.Join(folder, "z"), nil, 0o600); err != nil { // changes the content
			t.Fatal(err)
		}
	}
}
