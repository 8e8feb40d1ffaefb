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

// bill counts the requests that a worker makes.
type bill struct{ reads, writes, puts, deletes, receives, others atomic.Int64 }

type billedDocs struct {
	document.Store
	*bill
}

func (b billedDocs) Get(ctx context.Context, key string) (document.Doc, error) {
	b.reads.Add(1)
	return b.Store.Get(ctx, key)
}

func (b billedDocs) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	b.writes.Add(1)
	return b.Store.Create(ctx, key, value)
}

func (b billedDocs) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (document.Revision, error) {
	b.writes.Add(1)
	return b.Store.Replace(ctx, key, value, rev)
}

type billedBlobs struct {
	blob.Store
	*bill
}

func (b billedBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	b.puts.Add(1)
	return b.Store.Put(ctx, key, r, o)
}

func (b billedBlobs) Delete(ctx context.Context, key, version string) error {
	b.deletes.Add(1)
	return b.Store.Delete(ctx, key, version)
}

type billedQueues struct {
	queue.Queues
	*bill
}

func (b billedQueues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) ([]queue.Message, error) {
	b.receives.Add(1)
	return b.Queues.Receive(ctx, name, most, visibility, wait)
}

func (b billedQueues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	b.others.Add(1)
	return b.Queues.Send(ctx, name, bodies, delay)
}

// What a worker costs that waits for work in a cloud: a heartbeat and a look at
// its mark every 10 s, two long polls every 20 s, and a look at the clock each
// minute.
func TestAnIdleWorkerInACloudAsksForLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan string, 1)
		o := options(memory.NewDocuments(), leave)
		o.Deployment.Health = config.DefaultCloudHealth()
		o.Capabilities = cloud.Capabilities{LongPoll: true, BilledQueues: true}
		var b bill
		o.Ports.Docs, o.Ports.Blobs, o.Ports.Queues = billedDocs{o.Ports.Docs, &b}, billedBlobs{o.Ports.Blobs, &b}, billedQueues{o.Ports.Queues, &b}
		ended := make(chan error, 1)
		go func() {
			_, err := process.Run(t.Context(), o)
			ended <- err
		}()
		pass(time.Minute)
		before := [...]int64{b.reads.Load(), b.writes.Load(), b.receives.Load(), b.puts.Load(), b.deletes.Load(), b.others.Load()}
		pass(time.Hour)
		for i, after := range [...]int64{b.reads.Load(), b.writes.Load(), b.receives.Load(), b.puts.Load(), b.deletes.Load(), b.others.Load()} {
			what, most := [...]string{"reads", "writes", "receives", "puts", "deletes", "other requests to queues"}[i], [...]int64{360, 360, 360, 60, 60, 0}[i]
			if got := after - before[i]; got > most {
				t.Errorf("%d %s in an hour, want %d at most", got, what, most)
			}
		}
		leave <- "the test ends"
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
