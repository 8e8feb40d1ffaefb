package e2e

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/functions/inprocess"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const (
	key       = "prompts/my nightly+file & 日本 100%.jsonl"
	runConfig = "schema_version = 1\n[shard]\nitems = 20\n"
	patience  = 5 * time.Minute
)

// prompts are n lines, some of which are invalid or repeat an id.
func prompts(n int) string {
	var b strings.Builder
	for i := range n {
		switch i % 50 {
		case 7:
			b.WriteString("{\"prompt\": 7\n")
		case 9:
			fmt.Fprintf(&b, `{"id":"p-0","prompt":"a duplicate, %d"}`+"\n", i)
		default:
			fmt.Fprintf(&b, `{"id":"p-%d","prompt":"Wörter & \"quotes\" %d ✓","tag":%d}`+"\n", i, i, i)
		}
	}
	return b.String()
}

// upload puts prompts with their config into a bucket and returns the run.
func upload(t *testing.T, p host.Ports, bucket, prompts string) identity.RunID {
	t.Helper()
	hosttest.Put(t, p, strings.TrimSuffix(key, "jsonl")+"toml", runConfig)
	return identity.UploadRun(bucket, key, hosttest.Put(t, p, key, prompts))
}

// work runs a worker until ctx ends.
func work(ctx context.Context, p host.Ports, d config.Deployment, id string) {
	executor := infer.New(infer.Config{Engine: mock.New(mock.Config{Delay: 20 * time.Millisecond}), Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler), ProgressTimeout: time.Minute, MaxOutage: time.Minute})
	p = p.WithSource("worker/" + id)
	w := worker.New(p, worker.Config{ID: id, Pool: "default", Timings: host.Timings(d.Health), InFlight: 8,
		CheckpointInterval: time.Minute, Drain: 5 * time.Second, Grace: time.Second, LongPoll: time.Second},
		input.NewIndex(p.Blobs, p.Docs), executor)
	_ = w.Run(ctx) // it ends with the test
}

// laptop answers the prompts in one process, over stores in memory, and returns
// completions and errors.
func laptop(t *testing.T, prompts string) [2]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	p := hosttest.New()
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	uploads := make(chan blob.Upload, 1)
	system := inprocess.New(p, inprocess.Config{Deployment: d, Uploads: uploads})
	all.Go(func() { _ = system.Run(ctx) }) // it ends with the test
	all.Go(func() { work(ctx, p, d, "01JD2ZQ4T5W0M1X9YB7R3K8CV1") })
	id := upload(t, p, d.Bucket, prompts)
	info, err := p.Blobs.Stat(ctx, key, "")
	if err != nil {
		t.Fatal(err)
	}
	uploads <- blob.Upload{Info: info}
	return results(t, p, id, func() string { return "" })
}

// generatedAt matches the only part of a row that differs between two runs.
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// results waits until a run has ended and returns its completions and errors.
func results(t *testing.T, p host.Ports, id identity.RunID, log func() string) (files [2]string) {
	t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); ; <-poll.C {
		if _, err := p.Blobs.Stat(t.Context(), record.OutputKey(id, record.SummaryFile), ""); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run has not ended\n%s", log())
		}
	}
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		r, _, err := p.Blobs.Get(t.Context(), record.OutputKey(id, name), blob.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		_ = r.Close() // read only: nothing can be lost
		if err != nil {
			t.Fatal(err)
		}
		files[i] = generatedAt.ReplaceAllString(string(content), `"generated_at":""`)
	}
	return files
}

// wantLaptops fails the test unless the files of a run are those of a laptop.
func (in *installation) wantLaptops(t *testing.T, id identity.RunID, prompts string) {
	t.Helper()
	got, want := results(t, in.Ports, id, in.log.String), laptop(t, prompts)
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		if got[i] != want[i] || len(want[i]) == 0 {
			t.Errorf("%s differs: %d and %d bytes\n%s", name, len(got[i]), len(want[i]), in.log)
		}
	}
}

// A file that is put into the bucket becomes completions, byte for byte those of a
// laptop, although messages come twice, replies are lost, commits are aborted, and
// requests are throttled. No document is written more often than Firestore sustains,
// and nothing becomes a dead letter.
func TestUploadBecomesTheCompletionsOfALaptop(t *testing.T) {
	for name, f := range map[string]faults{
		"without faults": {},
		"with faults": {
			firestore: fakefirestore.Faults{Seed: 1, Aborted: 10, LostReplies: 10},
			pubsub:    fakepubsub.Faults{Seed: 2, LostReplies: 10, Duplicates: 20, StaleAcks: 50},
			storage:   fakegcs.NewFaults(3, 10, 10, 5),
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := deploy(t, f, "")
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			all.Go(func() { in.tick(ctx) })
			for n := range 2 {
				all.Go(func() { work(ctx, in.Ports, in.Deployment, fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K8CV%d", n)) })
			}
			file := prompts(600)
			in.wantLaptops(t, upload(t, in.Ports, bucket, file), file)
			const window = 10 * time.Second
			if document, n := in.firestore.Busiest(window); n > 10 {
				t.Errorf("%s was written %d times within %v, which is more than once a second", document, n, window)
			}
			for _, q := range []string{host.TaskQueue, host.CoordinateQueue, host.WorkQueue("default")} {
				got, err := in.Ports.Queues.Receive(ctx, queue.DeadLetterQueue(q), 10, time.Minute, 0)
				if err != nil || len(got) > 0 {
					t.Errorf("the dead letters of %s: %v, %v\n%s", q, got, err, in.log)
				}
			}
		})
	}
}
