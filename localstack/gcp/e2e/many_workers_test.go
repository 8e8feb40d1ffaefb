package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/scenarios"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/input"
)

// Many workers answer one run. Its files are a laptop's, and no document is written more
// than once a second. Take 200 workers with -args -workers 200.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	in := deploy(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { in.tick(ctx) })
	for n := range *workers {
		all.Go(func() { work(ctx, in.Ports, in.Deployment, fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K%04d", n)) })
	}
	const config = "schema_version = 1\n[shard]\nitems = 20\n"
	file, f := scenarios.MixedPrompts(100**workers), in.fixture(t)
	start := time.Now()
	f.Upload("prompts/x.toml", config)
	got := f.AwaitEnd(f.Put(key, file))
	t.Logf("%d workers answered in %v", *workers, time.Since(start).Round(time.Second))
	scenarios.WantSame(t, got, f.Local(key, file, config))
	f.Check()
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
