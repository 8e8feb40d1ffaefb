package batch_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"rollout/scripts/rollout/batch"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// endedBatch returns a batch whose run has written its files.
func endedBatch(t *testing.T) batch.Batch {
	t.Helper()
	p := hosttest.New()
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, record.SummaryFile} {
		hosttest.Put(t, p, record.OutputKey(inputtest.RunID, name), "the "+name)
	}
	b := batch.Batch{Local: &installation.Local{Dir: t.TempDir(), Ports: p}, Run: inputtest.RunID}
	b.Config.Output.Dir = filepath.Join(t.TempDir(), "out", "deep")
	return b
}

// fileNames returns the names of the files in a folder, sorted.
func fileNames(t *testing.T, dir string) (out []string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}

func TestPublishCopiesTheRunsFiles(t *testing.T) {
	t.Parallel()
	b := endedBatch(t)
	for range 2 { // the second time replaces the files of the first
		if err := b.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"completions.jsonl", "errors.jsonl", "summary.json"}
	if got := fileNames(t, b.Config.Output.Dir); !reflect.DeepEqual(got, want) {
		t.Errorf("the folder has %v, want %v", got, want)
	}
	got, err := os.ReadFile(filepath.Join(b.Config.Output.Dir, "errors.jsonl"))
	if err != nil || string(got) != "the errors.jsonl" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestInterruptedPublishKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	b := endedBatch(t)
	if err := b.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	hosttest.Put(t, b.Local.Ports, record.OutputKey(b.Run, record.CompletionsFile), "newer")
	b.Local.Ports.Blobs = brokenStore{b.Local.Ports.Blobs}
	if err := b.Publish(t.Context()); err == nil {
		t.Error("an incomplete copy returned no error")
	}
	got, _ := os.ReadFile(filepath.Join(b.Config.Output.Dir, record.CompletionsFile))
	if string(got) != "the completions.jsonl" {
		t.Errorf("the file is %q", got)
	}
	if got := fileNames(t, b.Config.Output.Dir); len(got) != 3 {
		t.Errorf("the folder has %v", got)
	}
}

// brokenStore breaks every connection after two bytes.
type brokenStore struct{ blob.Store }

func (b brokenStore) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := b.Store.Get(ctx, key, o)
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, 2), brokenReader{}), r}, info, err
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) {
	return 0, fault.New(fault.Unavailable, "the connection broke")
}

func TestRefusedRunPublishesOnlyItsSummary(t *testing.T) {
	t.Parallel()
	b := endedBatch(t)
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		if err := b.Local.Ports.Blobs.Delete(t.Context(), record.OutputKey(b.Run, name), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fileNames(t, b.Config.Output.Dir); !reflect.DeepEqual(got, []string{"summary.json"}) {
		t.Errorf("the folder has %v", got)
	}
}

func TestWriteDeploymentRoundTrips(t *testing.T) {
	t.Parallel()
	c := config.DefaultInfer()
	c.Model.URI = "org/model"
	c.Engine = config.Engine{
		URLs:   []string{"http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1"},
		Secret: "api-key", ClampMaxTokens: true,
	}
	c.Worker.InFlight, c.Worker.CheckpointInterval = 17, config.Duration(42*time.Second)
	c.Health.Interval = config.Duration(300 * time.Millisecond)
	dir := filepath.Join(t.TempDir(), "state")
	for range 2 {
		if err := batch.WriteDeployment(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, installation.DeploymentFile))
	if err != nil {
		t.Fatal(err)
	}
	d, err := config.ParseDeployment("rollout.toml", b)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	if d.Worker != c.Worker || d.Health != c.Health || !reflect.DeepEqual(d.Engine, c.Engine) {
		t.Errorf("it reads as %+v", d)
	}
	if len(d.Pools) != 1 || d.Pools[0].Model != "org/model" || !reflect.DeepEqual(d.Secrets, []string{"api-key"}) {
		t.Errorf("pools %v, secrets %v", d.Pools, d.Secrets)
	}
}
