package twoclouds

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"rollout/functions/inprocess"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
)

// key is where the prompts are.
const key = "prompts/nightly.jsonl"

// upload puts prompts with their config, and returns the run.
func upload(t *testing.T, p host.Ports, prompts string) identity.RunID {
	t.Helper()
	hosttest.Put(t, p, "prompts/nightly.toml", "schema_version = 1\n[shard]\nitems = 20\n")
	return identity.UploadRun(deployment().Bucket, key, hosttest.Put(t, p, key, prompts))
}

func deployment() config.Deployment {
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	return d
}

// answer lets functions and a worker answer the run until enough returns true.
func answer(t *testing.T, p host.Ports, id identity.RunID, name string, enough func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	d := deployment()
	uploads := make(chan blob.Upload, 1)
	system := inprocess.New(p, inprocess.Config{Deployment: d, Uploads: uploads})
	all.Go(func() { _ = system.Run(ctx) }) // it ends with answer
	executor := infer.New(infer.Config{Engine: mock.New(mock.Config{Delay: 20 * time.Millisecond}), Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler), ProgressTimeout: time.Minute, MaxOutage: time.Minute})
	w := worker.New(p.WithSource("worker"), worker.Config{ID: name, Pool: "default",
		Timings: host.Timings(d.Health), InFlight: 8, CheckpointInterval: time.Minute, Drain: 5 * time.Second,
		Grace: time.Second, LongPoll: time.Second}, input.NewIndex(p.Blobs, p.Docs), executor)
	all.Go(func() { _ = w.Run(ctx) })                                                     // likewise
	if _, err := p.Docs.Get(ctx, record.ManifestKey(id)); fault.Is(err, fault.NotFound) { // not a run yet
		info, err := p.Blobs.Stat(ctx, key, "")
		if err != nil {
			t.Fatal(err)
		}
		uploads <- blob.Upload{Info: info}
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !enough(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatal("the run does not go on")
		}
	}
}

// generatedAt matches the only part of a row that differs between two runs.
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// finish lets the run end, with a worker of that name, and returns its completions.
func finish(t *testing.T, p host.Ports, id identity.RunID, worker string) string {
	t.Helper()
	answer(t, p, id, worker, func() bool {
		_, err := p.Blobs.Stat(t.Context(), record.OutputKey(id, record.SummaryFile), "")
		return err == nil
	})
	r, _, err := p.Blobs.Get(t.Context(), record.OutputKey(id, record.CompletionsFile), blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // read only
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return generatedAt.ReplaceAllString(string(content), "")
}
