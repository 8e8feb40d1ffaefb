// Package queuetest is the conformance suite of the queue port: what every
// driver of queue.Queues promises, as tests. Only tests import it.
//
// It never sleeps and never judges speed: it waits for messages, moves the
// driver's clock, or runs in a bubble where time passes by itself.
package queuetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// Features says which promises differ between drivers.
type Features struct {
	// Reopen opens another handle on the queues that q is a handle on, such as
	// another process would have; nil if all share one.
	Reopen func(t *testing.T, q queue.Queues) queue.Queues
	// Depth is true if the driver is a queue.Depther that counts exactly.
	Depth bool
	// Synctest runs each test in a testing/synctest bubble.
	Synctest bool
	// Advance moves the clock of the driver; nil if time passes by itself, in
	// a bubble or in a cloud.
	Advance func(q queue.Queues, d time.Duration)
	// RequestBudget is how long a test's requests may take together where time passes by
	// itself; 0 is 10 s.
	RequestBudget time.Duration
}

// Times of the suite: clouds count in seconds.
const (
	short   = 2 * time.Second
	patient = time.Minute // ends only a test that fails
)

// long is a time within which no test wants to see the end of a visibility. A
// test that waits for longer than that has to be able to afford it, where time
// passes by itself.
func (features Features) long() time.Duration {
	if features.Synctest || features.Advance != nil {
		return 5 * time.Minute
	}
	return cmp.Or(features.RequestBudget, 10*time.Second)
}

// Run runs the suite. open returns a handle on empty queues of its own.
func Run(t *testing.T, open func(t *testing.T) queue.Queues, features Features) {
	if features.Reopen == nil {
		features.Reopen = func(_ *testing.T, q queue.Queues) queue.Queues { return q }
	}
	cases := []struct {
		name string
		run  func(t *testing.T, f *fixture)
	}{
		{"a message arrives as sent", testSend},
		{"a large batch arrives whole", testLargeBatch},
		{"queues are separate", testSeparate},
		{"bodies, names and times have limits", testLimits},
		{"a received message comes again when its visibility is over", testVisibility},
		{"an acked message is gone", testAck},
		{"a nacked message comes again after the delay", testNack},
		{"an extended message stays hidden", testExtend},
		{"stale receipts are ignored, but for Extend", testStale},
		{"a delayed message comes later", testDelay},
		{"a message received too often is a dead letter", testDeadLetters},
		{"dead letters stay in their queue", testDeadLettersStay},
		{"a waiting receiver wakes on a send", testWakeOnSend},
		{"a waiting receiver wakes when a message gets visible", testWakeOnTime},
		{"a receiver waits in vain for its wait", testWaitInVain},
		{"an ended context is Canceled", testCanceled},
		{"consumers share messages without overlap", testConsumers},
		{"nothing is lost to consumers that fail", testAtLeastOnce},
		{"lost replies lose no message", testLostReplies},
	}
	for _, c := range cases {
		features.run(t, c.name, open, c.run)
	}
	if features.Depth {
		features.run(t, "depth counts visible and hidden messages", open, testDepth)
	}
}

func (features Features) run(t *testing.T, name string, open func(t *testing.T) queue.Queues, body func(t *testing.T, f *fixture)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		inside := func(t *testing.T) {
			q := open(t)
			body(t, &fixture{Queues: q, other: features.Reopen(t, q), features: features, long: features.long()})
		}
		if features.Synctest {
			synctest.Test(t, inside)
			return
		}
		inside(t)
	})
}

// fixture is one set of queues with two handles on it.
type fixture struct {
	queue.Queues
	other    queue.Queues
	features Features
	long     time.Duration
}

// pass moves the driver's clock, if it has one that can be moved; else time
// passes while a receiver waits.
func (f *fixture) pass(d time.Duration) {
	if f.features.Advance != nil {
		f.features.Advance(f.Queues, d)
	}
}

// settle lets the goroutines of a bubble run until all of them wait.
func (f *fixture) settle() {
	if f.features.Synctest {
		synctest.Wait()
	}
}

// wantQuiet fails if a message gets visible within d.
func (f *fixture) wantQuiet(t *testing.T, name string, d time.Duration) {
	t.Helper()
	wait := d
	if f.features.Advance != nil {
		f.features.Advance(f.Queues, d)
		wait = 0
	}
	msgs, err := f.Receive(t.Context(), name, 1, f.long, wait)
	if err != nil || len(msgs) > 0 {
		t.Fatalf("queue %s: got %d messages, %v, want silence for %v", name, len(msgs), err, d)
	}
}

func (f *fixture) send(t *testing.T, name string, bodies ...string) {
	t.Helper()
	if err := f.Send(t.Context(), name, bytesOf(bodies), 0); err != nil {
		t.Fatalf("send to %s: %v", name, err)
	}
}

// receive returns one message, waiting for it.
func (f *fixture) receive(t *testing.T, name string, visibility time.Duration) queue.Message {
	t.Helper()
	msgs, err := f.other.Receive(t.Context(), name, 1, visibility, patient)
	if err != nil {
		t.Fatalf("receive from %s: %v", name, err)
	}
	if len(msgs) != 1 {
		t.Fatalf("receive from %s: got %d messages, want 1", name, len(msgs))
	}
	m := msgs[0]
	if m.ID == "" || m.Receipt == "" {
		t.Fatalf("receive from %s: id or receipt is empty: %+v", name, m)
	}
	return m
}

// drain receives everything that is visible, until nothing is.
func drain(ctx context.Context, q queue.Queues, name string, visibility time.Duration) ([]queue.Message, error) {
	var all []queue.Message
	for {
		msgs, err := q.Receive(ctx, name, queue.MaxBatch, visibility, 0)
		if err != nil || len(msgs) == 0 {
			return all, err
		}
		all = append(all, msgs...)
	}
}

func (f *fixture) ack(t *testing.T, name string, msgs ...queue.Message) {
	t.Helper()
	var receipts []string
	for _, m := range msgs {
		receipts = append(receipts, m.Receipt)
	}
	if err := f.Ack(t.Context(), name, receipts); err != nil {
		t.Fatalf("ack in %s: %v", name, err)
	}
}

func bytesOf(bodies []string) [][]byte {
	var all [][]byte
	for _, body := range bodies {
		all = append(all, []byte(body))
	}
	return all
}

// sorted returns the bodies of the messages.
func sorted(msgs []queue.Message) []string {
	var bodies []string
	for _, m := range msgs {
		bodies = append(bodies, string(m.Body))
	}
	slices.Sort(bodies)
	return bodies
}

// numbered returns n bodies in order.
func numbered(n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("message %04d", i)
	}
	return bodies
}

// wantKind fails unless err is of the kind.
func wantKind(t *testing.T, err error, kind fault.Kind, format string, args ...any) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got error %v (%v), want %v", fmt.Sprintf(format, args...), err, fault.KindOf(err), kind)
	}
}
