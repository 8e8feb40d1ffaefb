package worker

import (
	"context"
	"sync"
	"time"

	"rollout/events"
	"rollout/shared/host"
)

// outbox batches acks of messages and ShardDone events, neither of which is
// urgent: the heartbeat stands for a claimed shard, and the document says that a
// shard is done. Many shards then share one request and one synced write. If the
// worker dies, the messages are delivered again and reclaim finds the shards.
type outbox struct {
	mu        sync.Mutex
	acks      map[string][]string // receipts by queue
	reports   []events.Payload    // for coordinate
	scheduled bool                // a send will follow
	flushNow  chan struct{}       // a value ends the wait before the send
}

// defaultGather is how long a batch waits if Config.Gather is 0. It is much less
// than a message's visibility timeout, and than coordinate's own batching.
const defaultGather = 20 * time.Millisecond

// maxBatch is how many messages a store takes in one request.
const maxBatch = 10

// acknowledge acknowledges a message with the next batch.
func (w *Worker) acknowledge(ctx context.Context, q, receipt string) {
	w.outbox.mu.Lock()
	defer w.outbox.mu.Unlock()
	if w.outbox.acks == nil {
		w.outbox.acks = map[string][]string{}
	}
	w.outbox.acks[q] = append(w.outbox.acks[q], receipt)
	w.scheduleSend(ctx)
	if len(w.outbox.acks[q]) >= maxBatch {
		w.flush()
	}
}

// report sends an event to coordinate with the next batch.
func (w *Worker) report(ctx context.Context, p events.Payload) {
	w.outbox.mu.Lock()
	defer w.outbox.mu.Unlock()
	w.outbox.reports = append(w.outbox.reports, p)
	w.scheduleSend(ctx)
	if len(w.outbox.reports) >= maxBatch {
		w.flush()
	}
}

// flush sends the batch without further waiting. Call it when the batch is full
// or the worker is idle: then the last shard's event does not wait for more.
// Without a scheduled send, it only sends the next batch early.
func (w *Worker) flush() {
	select {
	case w.outbox.flushNow <- struct{}{}:
	default:
	}
}

// scheduleSend schedules a send of the batch, which the worker waits for before
// Run returns. The caller holds w.outbox.mu.
func (w *Worker) scheduleSend(ctx context.Context) {
	if w.outbox.scheduled {
		return
	}
	w.outbox.scheduled = true
	w.work.Go(func() {
		w.gather(ctx)
		w.outbox.mu.Lock()
		acks, reports := w.outbox.acks, w.outbox.reports
		w.outbox.acks, w.outbox.reports, w.outbox.scheduled = nil, nil, false
		w.outbox.mu.Unlock()
		if ctx.Err() == nil {
			w.sendBatch(ctx, acks, reports)
		}
	})
}

// gather waits until the batch may be sent: for the gather time, or until a
// flush or a drain.
func (w *Worker) gather(ctx context.Context) {
	if w.cfg.Gather == 0 {
		pause(ctx, defaultGather)
		return
	}
	t := time.NewTimer(w.cfg.Gather)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.outbox.flushNow:
	case <-w.drain:
	case <-ctx.Done():
	}
}

// sendBatch sends acks and events concurrently, so that a store may write them
// at once.
func (w *Worker) sendBatch(ctx context.Context, acks map[string][]string, reports []events.Payload) {
	var all sync.WaitGroup
	for q, receipts := range acks {
		all.Go(func() {
			if err := w.Queues.Ack(ctx, q, receipts); err != nil && ctx.Err() == nil {
				w.Log.WarnContext(ctx, "acks failed; the messages come back and change nothing",
					"messages", len(receipts), "error", err)
			}
		})
	}
	if len(reports) > 0 {
		all.Go(func() { w.logUnsent(ctx, w.Send(ctx, host.CoordinateQueue, reports...)) })
	}
	all.Wait()
}
