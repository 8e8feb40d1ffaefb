package worker

import (
	"context"
	"sync"
	"time"

	"rollout/events"
	"rollout/shared/host"
)

// outbox gathers, for a moment, what need not be told at once: that a message
// is done with, whose claim holds, and that a shard is done, which its document
// says. Many shards then share a request and a synced write. What is lost with
// the worker comes back by itself: the message, and reclaim finds the shard.
type outbox struct {
	mu      sync.Mutex
	acks    map[string][]string // receipts by queue
	news    []events.Payload    // for coordinate
	pending bool                // they will be sent
	// full rings when nothing is gained by waiting any longer.
	full chan struct{}
}

// gatherFor is how long the outbox gathers if nobody says: much less than a message stays
// hidden, or coordinate gathers itself.
const gatherFor = 20 * time.Millisecond

// enough is how many of a kind a store takes in one request.
const enough = 10

// acknowledge says that a message is done with, soon.
func (w *Worker) acknowledge(ctx context.Context, q, receipt string) {
	w.outbox.mu.Lock()
	defer w.outbox.mu.Unlock()
	if w.outbox.acks == nil {
		w.outbox.acks = map[string][]string{}
	}
	w.outbox.acks[q] = append(w.outbox.acks[q], receipt)
	w.sendSoon(ctx)
	w.flushIf(len(w.outbox.acks[q]) >= enough)
}

// report tells coordinate, soon.
func (w *Worker) report(ctx context.Context, p events.Payload) {
	w.outbox.mu.Lock()
	defer w.outbox.mu.Unlock()
	w.outbox.news = append(w.outbox.news, p)
	w.sendSoon(ctx)
	w.flushIf(len(w.outbox.news) >= enough)
}

// flushIf ends the gathering if so: it is enough, or the worker has nothing more
// to do, so that whoever waits for a run's last shard does not wait longer. A
// ring that nobody waited for sends the next one early, and no more.
func (w *Worker) flushIf(so bool) {
	if !so {
		return
	}
	select {
	case w.outbox.full <- struct{}{}:
	default:
	}
}

// sendSoon sends what was gathered, in a while. The worker waits for it before
// it ends. The outbox is locked.
func (w *Worker) sendSoon(ctx context.Context) {
	if w.outbox.pending {
		return
	}
	w.outbox.pending = true
	w.work.Go(func() {
		w.gather(ctx)
		w.outbox.mu.Lock()
		acks, news := w.outbox.acks, w.outbox.news
		w.outbox.acks, w.outbox.news, w.outbox.pending = nil, nil, false
		w.outbox.mu.Unlock()
		if ctx.Err() == nil {
			w.send(ctx, acks, news)
		}
	})
}

// gather waits for company of what is to be sent; a worker that drains, or has
// run dry, has no time for that.
func (w *Worker) gather(ctx context.Context) {
	if w.cfg.Gather == 0 {
		pause(ctx, gatherFor)
		return
	}
	t := time.NewTimer(w.cfg.Gather)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.outbox.full:
	case <-w.drain:
	case <-ctx.Done():
	}
}

// send sends all at the same time, so that a store may write it at once.
func (w *Worker) send(ctx context.Context, acks map[string][]string, news []events.Payload) {
	var all sync.WaitGroup
	for q, receipts := range acks {
		all.Go(func() {
			if err := w.Queues.Ack(ctx, q, receipts); err != nil && ctx.Err() == nil {
				w.Log.WarnContext(ctx, "acks failed; the messages come back and change nothing", "messages", len(receipts), "error", err)
			}
		})
	}
	if len(news) > 0 {
		all.Go(func() { w.announce(ctx, w.Send(ctx, host.CoordinateQueue, news...)) })
	}
	all.Wait()
}
