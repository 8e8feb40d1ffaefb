package worker

import (
	"context"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

// Waits of the pull loop.
const (
	longPoll  = time.Second
	maxPull   = 32 // messages at once
	maxAhead  = 32 // shards claimed ahead of the engine, at most
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
	retryTake = time.Second // before a message that could not be acted on is seen again
)

// pullLoop pulls messages while the engine could do with more items, until the
// worker drains, its executor is at fault for good, or ctx ends.
func (w *Worker) pullLoop(ctx context.Context) error {
	poll, cancel := context.WithCancel(ctx)
	defer cancel()
	w.work.Go(func() { // a long poll ends with the drain
		select {
		case <-w.drain:
			cancel()
		case <-poll.Done():
		}
	})
	looks := w.cfg.queuePickers()
	ends := make(chan error, len(looks))
	for i, from := range looks {
		go func() { ends <- w.pull(ctx, poll, from, w.changed[i]) }()
	}
	var failed error
	for range looks {
		if err := <-ends; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	return failed
}

// pull pulls from some of the queues, until poll ends.
func (w *Worker) pull(ctx, poll context.Context, from queuePicker, changed <-chan struct{}) error {
	for wait := firstWait; poll.Err() == nil; {
		if err := w.awaitReady(poll); err != nil {
			return err
		}
		n := w.wanted()
		if n == 0 {
			select {
			case <-poll.Done():
			case <-changed:
			}
			continue
		}
		// The visibility covers a claim, not the work: a message is acknowledged
		// as soon as its claim holds.
		q, patience := from.next(w.Clock.Now())
		ms, err := w.Queues.Receive(poll, q, n, w.cfg.Timings.Visibility(), patience)
		from.found(len(ms))
		if err != nil && poll.Err() == nil {
			w.Log.WarnContext(ctx, "work can't be received", "error", err)
			pause(poll, wait)
			wait = min(2*wait, lastWait)
			continue
		}
		wait = firstWait
		if !w.mayTake(len(ms)) { // the executor failed while this was waited for
			for _, m := range ms {
				w.leave(ctx, q, m, 0) // another worker's may do better
			}
			continue
		}
		for _, m := range ms {
			w.work.Go(func() { w.take(ctx, q, m) })
		}
	}
	return nil
}

// mayTake counts so many messages as being taken, unless the executor is in
// doubt.
func (w *Worker) mayTake(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unready {
		return false
	}
	w.taking += n
	if n > 0 {
		w.busyAt = w.Clock.Now()
	}
	return true
}

// idle reports whether the worker has nothing to do. It is called locked.
func (w *Worker) idle() bool { return w.taking == 0 && len(w.held) == 0 }

// wanted is how many messages to ask for: as many as keep one engine-full of
// items ready to begin, and what the engine begins while they are claimed. Half
// of the latter is used up before more is asked for, so that a fast engine's
// messages come several at once.
func (w *Worker) wanted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := w.taking * w.perShard
	for _, h := range w.held {
		if h.work != nil { // else it counts among taking
			ready += h.work.unbegun()
		}
	}
	ahead := min(w.pace.ahead(), maxAhead*w.perShard)
	want := w.slots.size() + ahead
	if ready >= want || ready > want-ahead/2 {
		return 0
	}
	return min(maxPull, (want-ready+w.perShard-1)/w.perShard)
}

// awaitReady asks the executor until it is ready, if there is doubt.
func (w *Worker) awaitReady(ctx context.Context) error {
	w.asking.Lock() // one asks for all who pull
	defer w.asking.Unlock()
	w.mu.Lock()
	doubt, faults := w.unready, w.faults
	w.mu.Unlock()
	if !doubt {
		return nil
	}
	if faults > 0 { // it may say that it is ready, and yet fail every shard
		pause(ctx, min(firstWait<<min(faults, 10), lastWait))
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
	if w.state == health.Init {
		w.state = health.Ready
	}
	return nil
}

// pause waits, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// take handles one message to its end: the shard's commit or release, if the
// message leads to a claim.
func (w *Worker) take(ctx context.Context, q string, m queue.Message) {
	start := w.Clock.Now()
	holding, h, err := w.claim(ctx, q, m)
	w.pace.claimed(w.Clock.Now().Sub(start))
	w.mu.Lock()
	w.taking--
	w.busyAt = w.Clock.Now()
	w.flushIf(w.idle())
	w.mu.Unlock()
	w.wake()
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "message not taken", "message", m.ID, "error", err)
		w.leave(ctx, q, m, retryTake)
	}
	if h != nil {
		h.span.End(w.execute(holding, h))
	}
}

// leave lets a message be received again, after so long.
func (w *Worker) leave(ctx context.Context, q string, m queue.Message, after time.Duration) {
	if err := w.Queues.Nack(ctx, q, m.Receipt, after); err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "nack failed; the message comes back by itself", "message", m.ID, "error", err)
	}
}
