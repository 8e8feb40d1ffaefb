package worker

import (
	"context"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// Limits and waits of the pull loop.
const (
	longPoll   = time.Second
	maxPull    = 32 // messages in one request
	maxAhead   = 32 // shards claimed ahead of the engine
	firstWait  = 50 * time.Millisecond
	lastWait   = 2 * time.Second
	retryClaim = time.Second // until a message whose claim failed is delivered again
)

// pullLoop receives messages as long as the engine needs more items. It ends
// when the worker drains or ctx ends, and with an error if the executor can't
// work at all.
func (w *Worker) pullLoop(ctx context.Context) error {
	poll, cancel := context.WithCancel(ctx)
	defer cancel()
	w.work.Go(func() { // a drain ends long polls
		select {
		case <-w.drain:
			cancel()
		case <-poll.Done():
		}
	})
	pickers := w.cfg.queuePickers()
	ends := make(chan error, len(pickers))
	for i, p := range pickers {
		go func() { ends <- w.pull(ctx, poll, p, w.wakeups[i]) }()
	}
	var failed error
	for range pickers {
		if err := <-ends; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	return failed
}

// pull receives messages from the queues of one picker until poll ends.
func (w *Worker) pull(ctx, poll context.Context, picker queuePicker, wakeup <-chan struct{}) error {
	for wait := firstWait; poll.Err() == nil; {
		if err := w.awaitReady(poll); err != nil {
			return err
		}
		want := w.wanted()
		var q string
		var n int
		var pollFor time.Duration
		if !want.isZero() {
			q, n, pollFor = picker.next(w.Clock.Now(), want)
		}
		if n == 0 {
			select {
			case <-poll.Done():
			case <-wakeup:
			}
			continue
		}
		// The visibility timeout covers a claim, not the answers: a message is
		// acknowledged as soon as its claim holds.
		asked := w.Clock.Now()
		ms, err := w.Queues.Receive(poll, q, n, w.cfg.Timings.Visibility(), pollFor)
		picker.found(len(ms))
		if err == nil && len(ms) == 0 {
			w.mu.Lock()
			w.pool.empty(q == host.UrgentQueue(w.cfg.Pool), asked)
			w.mu.Unlock()
		}
		if err != nil && poll.Err() == nil {
			w.Log.WarnContext(ctx, "messages can't be received", "error", err)
			pause(poll, wait)
			wait = min(2*wait, lastWait)
			continue
		}
		wait = firstWait
		if !w.startClaims(len(ms)) { // the executor failed during the poll
			for _, m := range ms {
				w.nack(ctx, q, m, 0) // another worker can have it at once
			}
			continue
		}
		for _, m := range ms {
			w.work.Go(func() { w.handle(ctx, q, m) })
		}
	}
	return nil
}

// startClaims counts n messages as being claimed. It returns false, and counts
// none, if the executor is not ready.
func (w *Worker) startClaims(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unready {
		return false
	}
	if n > 0 {
		if now := w.Clock.Now(); w.resting() {
			// The next heartbeat is due now or later: it is not late because of the rest.
			if due := now.Add(-w.cfg.Timings.Interval); w.heartbeatSent.Before(due) {
				w.heartbeatSent = due
			}
			w.endRest()
		}
		w.lastBusy = w.Clock.Now()
	}
	w.claiming += n
	return true
}

// idle reports whether the worker claims and holds nothing. The caller holds
// w.mu.
func (w *Worker) idle() bool { return w.claiming == 0 && len(w.held) == 0 }

// wanted returns how many messages to ask for: for the sake of the engine, enough that as
// many items wait to begin as it takes at once, plus those that it begins while messages
// are claimed. It asks again only when half of the latter are used up, so that
// the messages of a fast engine come several at once. Under a limit it asks for no more
// than may begin soon, so that other workers have the rest.
func (w *Worker) wanted() demand {
	w.mu.Lock()
	defer w.mu.Unlock()
	short := w.short()
	d := demand{runs: short.either, urgentRuns: short.urgent, crowded: w.pool.crowded}
	ready := w.claiming * w.perShard
	for _, h := range w.held {
		if h.work != nil { // else it counts among those being claimed
			ready += h.work.unbegun()
		}
	}
	ahead := min(w.pace.ahead(), maxAhead*w.perShard)
	want := w.limiter.soon(w.slots.size()) + ahead
	if ready >= want || ready > want-ahead/2 {
		return d
	}
	d.items = min(maxPull, (want-ready+w.perShard-1)/w.perShard)
	return d
}

// awaitReady waits until the executor is ready. It returns at once if the
// executor was ready and has not failed since.
func (w *Worker) awaitReady(ctx context.Context) error {
	w.readyMu.Lock() // one puller asks for all
	defer w.readyMu.Unlock()
	w.mu.Lock()
	unready, failures := w.unready, w.failures
	w.mu.Unlock()
	if !unready {
		return nil
	}
	if failures > 0 { // an executor may report ready and yet fail every shard
		pause(ctx, min(firstWait<<min(failures, 10), lastWait))
	}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := w.exec.Ready(ctx)
		w.stats.ready(err)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if fault.Is(err, fault.Denied) || fault.Is(err, fault.Invalid) {
			return fault.Wrap(err, "engine of worker %s", w.cfg.ID)
		}
		w.Log.WarnContext(ctx, "engine is not ready", "error", err)
		pause(ctx, wait)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unready = false
	w.machine.ready()
	if w.state == health.Init {
		w.state = health.Ready
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// handle claims the shard of one message and executes it until it is committed
// or released.
func (w *Worker) handle(ctx context.Context, q string, m queue.Message) {
	start := w.Clock.Now()
	shardCtx, h, err := w.claim(ctx, q, m)
	w.pace.claimed(w.Clock.Now().Sub(start))
	w.mu.Lock()
	w.claiming--
	w.pool.at = time.Time{}
	if h != nil {
		w.pool.claimed(h.run)
	}
	w.lastBusy = w.Clock.Now()
	if w.idle() {
		w.flush()
	}
	w.mu.Unlock()
	w.wake()
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "claim failed; the message will be delivered again", "message", m.ID, "error", err)
		w.nack(ctx, q, m, retryClaim)
	}
	if h != nil {
		h.span.End(w.execute(shardCtx, h))
	}
}

// nack makes the message visible again after the given time.
func (w *Worker) nack(ctx context.Context, q string, m queue.Message, after time.Duration) {
	if err := w.Queues.Nack(ctx, q, m.Receipt, after); err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "nack failed; the message comes back after its visibility timeout",
			"message", m.ID, "error", err)
	}
}
