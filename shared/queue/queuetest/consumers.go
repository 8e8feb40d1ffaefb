package queuetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
	"rollout/shared/retry"
)

const consumers = 8

func testConsumers(t *testing.T, f *fixture) {
	want := numbered(200)
	f.send(t, "work", want...)
	var mu sync.Mutex
	var all []queue.Message
	var errs []error
	var done sync.WaitGroup
	for i := range consumers {
		q := f.Queues
		if i%2 == 1 {
			q = f.other
		}
		done.Go(func() {
			msgs, err := drain(t.Context(), q, "work", f.long)
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, msgs...), append(errs, err)
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := sorted(all); !slices.Equal(got, want) {
		t.Errorf("%d consumers got %d messages, want each of %d once", consumers, len(got), len(want))
	}
}

// testAtLeastOnce lets consumers nack, forget or ack what they receive.
func testAtLeastOnce(t *testing.T, f *fixture) {
	want := numbered(60)
	f.send(t, "work", want...)
	acked := &ackCounter{left: len(want), seen: map[string]bool{}}
	errs := make([]error, consumers)
	var done sync.WaitGroup
	for i := range consumers {
		done.Go(func() { errs[i] = f.consume(t.Context(), acked) })
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// consume forgets, nacks or acks the first delivery of each message, depending on
// the last digit of the body. It acks all later deliveries.
func (f *fixture) consume(ctx context.Context, acked *ackCounter) error {
	wait := f.short
	if f.features.Advance != nil {
		wait = 0
	}
	for !acked.complete() {
		msgs, err := f.Receive(ctx, "work", 3, f.short, wait)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			switch kind := m.Body[len(m.Body)-1] % 3; {
			case m.Receives == 1 && kind == 0:
			case m.Receives == 1 && kind == 1:
				err = f.Nack(ctx, "work", m.Receipt, f.short/4)
			default:
				err = f.Ack(ctx, "work", []string{m.Receipt})
				acked.add(string(m.Body))
			}
			if err != nil {
				return err
			}
		}
		if len(msgs) == 0 {
			f.pass(f.short / 4)
		}
	}
	return nil
}

// ackCounter counts the messages that are still to be acked.
type ackCounter struct {
	mu   sync.Mutex
	left int
	seen map[string]bool
}

func (c *ackCounter) add(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen[body] {
		c.seen[body] = true
		c.left--
	}
}

func (c *ackCounter) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left == 0
}

// LoseReplies wraps the queues with a simulated network. After the queues have
// performed a request, the wrapper calls lose; if it returns true, the caller
// gets Unavailable instead of the reply. Receive passes through.
func LoseReplies(q queue.Queues, lose func() bool) queue.Queues { return lossy{q, lose} }

type lossy struct {
	queue.Queues
	lose func() bool
}

func (l lossy) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	return l.reply(l.Queues.Send(ctx, name, bodies, delay))
}

func (l lossy) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	return l.reply(l.Queues.Extend(ctx, name, receipt, visibility))
}

func (l lossy) Ack(ctx context.Context, name string, receipts []string) error {
	return l.reply(l.Queues.Ack(ctx, name, receipts))
}

func (l lossy) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	return l.reply(l.Queues.Nack(ctx, name, receipt, delay))
}

func (l lossy) reply(err error) error {
	if l.lose() {
		return fault.New(fault.Unavailable, "the reply was lost")
	}
	return err
}

func testLostReplies(t *testing.T, f *fixture) {
	ctx := t.Context()
	var losses atomic.Int64
	q := queue.Reliable(LoseReplies(f.Queues, func() bool { return losses.Add(-1) >= 0 }),
		retry.Policy{Tries: 3, Base: time.Microsecond})
	want := numbered(5)
	losses.Store(2)
	if err := q.Send(ctx, "work", bytesOf(want), 0); err != nil {
		t.Fatal(err)
	}
	msgs, err := drain(ctx, q, "work", f.long)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Compact(sorted(msgs)); !slices.Equal(got, want) {
		t.Errorf("got %q, want each of %q at least once", got, want)
	}
	losses.Store(1)
	if err := q.Extend(ctx, "work", msgs[0].Receipt, f.long); err != nil {
		t.Errorf("extend: %v", err)
	}
	losses.Store(1)
	if err := q.Nack(ctx, "work", msgs[0].Receipt, 0); err != nil {
		t.Errorf("nack: %v", err)
	}
	again := f.receive(t, "work", f.long)
	losses.Store(1)
	var receipts []string
	for _, m := range append(msgs, again) {
		receipts = append(receipts, m.Receipt)
	}
	if err := q.Ack(ctx, "work", receipts); err != nil {
		t.Errorf("ack: %v", err)
	}
	f.wantQuiet(t, "work", 2*f.long)
	losses.Store(3)
	wantKind(t, q.Send(ctx, "work", bytesOf(want), 0), fault.Unavailable, "send whose replies are all lost")
}
