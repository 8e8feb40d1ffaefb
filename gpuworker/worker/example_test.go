package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
)

// A worker answers one shard of two items with the mock engine, over stores in
// memory. In an installation, the functions submit, plan and coordinate write
// what the example plans and sends here.
func Example() {
	ctx, t := context.Background(), exampleTB{}
	clk := clock.System{}
	ports := host.Ports{Blobs: memory.NewBucket(clk), Docs: memory.NewDocuments(), Queues: memory.NewQueues(clk),
		Clock: clk, Log: slog.New(slog.DiscardHandler), Source: "example"}

	// Plan a run of one shard, and send its work message.
	prompts := `{"id":"a","prompt":"hello"}` + "\n" + `{"id":"b","prompt":"bye"}` + "\n"
	inputtest.Plan(t, ports, inputtest.Manifest(2), prompts)
	t.check(ports.Send(ctx, host.WorkQueue("default"), events.Work{Run: string(inputtest.RunID), Pool: "default"}))

	// Start a worker.
	executor := infer.New(infer.Config{Engine: mock.New(mock.Config{}), Clock: clk, Log: ports.Log,
		ProgressTimeout: time.Minute, MaxOutage: time.Minute})
	w := worker.New(ports, worker.Config{ID: "worker-1", Pool: "default", InFlight: 8,
		Timings:            host.Timings(config.DefaultDeployment().Health),
		CheckpointInterval: time.Minute, Drain: time.Second, Grace: time.Second},
		input.NewIndex(ports.Blobs, ports.Docs), executor)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	// Wait for ShardDone, then drain the worker.
	messages, err := ports.Queues.Receive(ctx, host.CoordinateQueue, 1, time.Minute, 10*time.Second)
	t.check(err)
	for _, m := range messages {
		_, event, err := events.Decode(m.Body)
		t.check(err)
		done := event.(events.ShardDone)
		fmt.Printf("shard %d done: attempt %d, %d answered, %d failed\n",
			done.Shard, done.Attempt, done.Counts.OK, done.Counts.Failed)
	}
	w.Drain("the example ends")
	t.check(<-ended)

	// The shard's document names the result object.
	doc := hosttest.Load[shard.Doc](t, ports, identity.ShardKey(inputtest.RunID, 0))
	for line := range strings.Lines(hosttest.Object(t, ports, doc.Result.Key)) {
		var row struct{ ID, Completion string }
		t.check(json.Unmarshal([]byte(line), &row))
		fmt.Println(row.ID, row.Completion)
	}

	// Output:
	// shard 0 done: attempt 1, 2 answered, 0 failed
	// a MOCK:hello
	// b MOCK:bye
}

// exampleTB lets an example call helpers for tests. A failure panics.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper() {}

func (exampleTB) Context() context.Context { return context.Background() }

func (exampleTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (exampleTB) check(err error) {
	if err != nil {
		panic(err)
	}
}
