package emulators

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
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
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/retry"
)

// A file with awkward lines under an awkward key is announced twice. Three workers
// answer it over a network that throttles and loses replies, and one of them
// crashes. The files are byte for byte those of a run over stores in memory
// without faults.
func TestRunOverTheDriversHasTheBytesOfARunInMemory(t *testing.T) {
	t.Parallel()
	local, cloud := localAndCloud(t)
	want, got := local.complete(t, false), cloud.complete(t, true)
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		if got[i] != want[i] || len(want[i]) == 0 {
			t.Errorf("%s differs: %d and %d bytes", name, len(got[i]), len(want[i]))
		}
	}
}

// stores are the stores of one run.
type stores struct {
	blobs  blob.Store
	docs   document.Store
	queues queue.Queues
}

// localAndCloud returns stores in memory, and stores of the drivers over a network
// that throttles and loses replies.
func localAndCloud(t *testing.T) (local, cloud stores) {
	t.Helper()
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	e.MakeTable(t.Context(), t)
	e.Faults = NewFaults(3, 10, 10)
	local = stores{memory.NewBucket(clock.System{}), memory.NewDocuments(), memory.NewQueues(clock.System{})}
	cloud = stores{e.Blobs(t), e.Documents(t, fresh()), e.Queues(t, fresh()+"-")}
	return local, cloud
}

func (s stores) ports(source string) host.Ports {
	return host.Ports{Blobs: s.blobs, Docs: document.Reliable(s.docs, retry.Policy{}),
		Queues: queue.Reliable(s.queues, retry.Policy{}),
		Clock:  clock.System{}, Log: slog.New(slog.DiscardHandler), Source: source}
}

// prompts are 600 lines, some of which are invalid or repeat an id.
func prompts() string {
	var b strings.Builder
	for i := range 600 {
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

const key = "prompts/my nightly+file & 日本 100%.jsonl"

// complete answers the prompts with three workers and returns completions and
// errors. With crash the first worker crashes after 30 answers.
func (s stores) complete(t *testing.T, crash bool) [2]string {
	t.Helper()
	files, _ := s.completeRun(t, "schema_version = 1\n[shard]\nitems = 20\n", prompts(), crash)
	return files
}

// completeRun is complete for a file with that config. It also returns the run.
func (s stores) completeRun(t *testing.T, toml, file string, crash bool) ([2]string, identity.RunID) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	if _, err := s.blobs.Put(ctx, strings.TrimSuffix(key, "jsonl")+"toml", strings.NewReader(toml),
		blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	info, err := s.blobs.Put(ctx, key, strings.NewReader(file), blob.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deploy := deployment()
	uploads := make(chan blob.Upload, 2)
	uploads <- blob.Upload{Info: info}
	uploads <- blob.Upload{Info: info}
	s.start(ctx, &all, deploy, uploads, crash)
	id := identity.UploadRun(deploy.Bucket, key, info.Version)
	return s.results(t, id), id
}

func deployment() config.Deployment {
	deploy := config.DefaultDeployment()
	deploy.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	deploy.Health.SelfFence = config.Duration(10 * time.Second)
	deploy.Health.FailureTimeout = config.Duration(12 * time.Second)
	return deploy
}

// start starts the functions and three workers, which end with ctx. With crash the first
// worker crashes after 30 answers.
func (s stores) start(ctx context.Context, all *sync.WaitGroup, deploy config.Deployment, uploads <-chan blob.Upload,
	crash bool) *inprocess.System {
	system := inprocess.New(s.ports("functions"), inprocess.Config{Deployment: deploy, Uploads: uploads})
	all.Go(func() { _ = system.Run(ctx) }) // it ends with the test
	for n := range 3 {
		alive, end := context.WithCancel(ctx)
		context.AfterFunc(ctx, end)
		var answers atomic.Int64
		config := infer.Config{Engine: mock.New(mock.Config{Delay: 20 * time.Millisecond}), Clock: clock.System{},
			Log: slog.New(slog.DiscardHandler), ProgressTimeout: time.Minute, MaxOutage: time.Minute}
		if n == 0 && crash {
			config.OnItem = func(infer.Item) {
				if answers.Add(1) == 30 {
					end()
				}
			}
		}
		all.Go(func() {
			// On a busy machine a worker may fence itself, and starts again under
			// another name.
			for start := 0; alive.Err() == nil; start++ {
				id := fmt.Sprintf("worker-%d-%d", n, start)
				p := s.ports(id)
				w := worker.New(p, worker.Config{ID: id, Pool: "default", Timings: host.Timings(deploy.Health), InFlight: 8,
					CheckpointInterval: time.Minute, Drain: 5 * time.Second, Grace: time.Second},
					input.NewIndex(p.Blobs, p.Docs), infer.New(config))
				_ = w.Run(alive)
			}
		})
	}
	return system
}

// generatedAt matches the only part of a row that differs between two runs.
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// results waits until a run has ended and returns its files.
func (s stores) results(t *testing.T, id identity.RunID) (files [2]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		if _, err := s.blobs.Stat(ctx, record.OutputKey(id, record.SummaryFile), ""); err == nil {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("the run has not ended")
		}
	}
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		r, _, err := s.blobs.Get(t.Context(), record.OutputKey(id, name), blob.GetOptions{})
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
