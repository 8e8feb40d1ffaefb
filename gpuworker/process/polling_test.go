package process_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/process"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/memory"
	"rollout/shared/queue"
)

// requestCounts counts the requests that a worker makes.
type requestCounts struct{ reads, writes, puts, deletes, receives, others atomic.Int64 }

type countedDocs struct {
	document.Store
	*requestCounts
}

func (b countedDocs) Get(ctx context.Context, key string) (document.Doc, error) {
	b.reads.Add(1)
	return b.Store.Get(ctx, key)
}

func (b countedDocs) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	b.writes.Add(1)
	return b.Store.Create(ctx, key, value)
}

func (b countedDocs) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error) {
	b.writes.Add(1)
	return b.Store.Replace(ctx, key, value, rev)
}

type countedBlobs struct {
	blob.Store
	*requestCounts
}

func (b countedBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	b.puts.Add(1)
	return b.Store.Put(ctx, key, r, o)
}

func (b countedBlobs) Delete(ctx context.Context, key, version string) error {
	b.deletes.Add(1)
	return b.Store.Delete(ctx, key, version)
}

type countedQueues struct {
	queue.Queues
	*requestCounts
}

func (b countedQueues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) (
	[]queue.Message, error) {
	b.receives.Add(1)
	return b.Queues.Receive(ctx, name, most, visibility, wait)
}

func (b countedQueues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	b.others.Add(1)
	return b.Queues.Send(ctx, name, bodies, delay)
}

// An idle worker in a cloud writes a heartbeat and reads its mark every 10 s, polls
// two queues for 20 s each, and checks its clock every minute.
func TestIdleWorkerInCloudMakesFewRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shutdown := make(chan string, 1)
		o := options(memory.NewDocuments(), shutdown)
		o.Deployment.Health = config.DefaultCloudHealth()
		o.Capabilities = cloud.Capabilities{LongPoll: true, BilledQueues: true}
		var c requestCounts
		o.Ports.Docs, o.Ports.Blobs = countedDocs{o.Ports.Docs, &c}, countedBlobs{o.Ports.Blobs, &c}
		o.Ports.Queues = countedQueues{o.Ports.Queues, &c}
		ended := make(chan error, 1)
		go func() {
			_, err := process.Run(t.Context(), o)
			ended <- err
		}()
		counters := []struct {
			name   string
			count  *atomic.Int64
			most   int64 // in an hour
			before int64
		}{
			{"reads", &c.reads, 360, 0}, {"writes", &c.writes, 360, 0}, {"receives", &c.receives, 360, 0},
			{"puts", &c.puts, 60, 0}, {"deletes", &c.deletes, 60, 0}, {"other requests to queues", &c.others, 0, 0},
		}
		advance(time.Minute)
		for i, k := range counters {
			counters[i].before = k.count.Load()
		}
		advance(time.Hour)
		for _, k := range counters {
			if got := k.count.Load() - k.before; got > k.most {
				t.Errorf("%d %s in an hour, want at most %d", got, k.name, k.most)
			}
		}
		shutdown <- "the test ends"
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
