// Package queuetest is the conformance suite of the queue port. It tests the
// promises that every driver of queue.Queues must keep. Only tests import it.
//
// It never sleeps and never measures speed: it waits for messages, advances the
// driver's clock, or runs in a synctest bubble, where waiting advances the time.
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

// Features describes the promises that differ between drivers.
type Features struct {
	// Reopen opens another handle on the queues of q, as another process would. Nil
	// reuses q.
	Reopen func(t *testing.T, q queue.Queues) queue.Queues
	// Depth is true if the driver is a queue.Depther that counts exactly.
	Depth bool
	// StaleUnnoticed is true if the queues may not notice a stale receipt: Extend of
	// one may succeed, and Ack and Nack of one may take effect. A receipt that is no
	// receipt at all is noticed.
	StaleUnnoticed bool
	// Synctest runs each test in a testing/synctest bubble.
	Synctest bool
	// Advance moves the driver's clock forward. It is nil if the suite waits for
	// time to pass, in a bubble or with a real store.
	Advance func(q queue.Queues, d time.Duration)
	// RequestBudget bounds the total duration of one test's requests on a machine
	// without other work, if time passes in real time. Default: 10 s.
	RequestBudget time.Duration
}

// patient is the longest wait for a message; only a failing test reaches it.
const patient = 5 * time.Minute

// times sets the visibilities of the test. They are whole seconds, the resolution
// of cloud queues. Where time passes in real time, long is short, so that waiting
// for its end stays affordable, and both grow with the time that requests take: on
// a busy machine a visibility would else end before the test's next request.
func (f *fixture) times(t *testing.T) {
	t.Helper()
	f.short, f.long = 2*time.Second, 5*time.Minute
	if f.features.Synctest || f.features.Advance != nil {
		return
	}
	began := time.Now()
	f.send(t, "probe", "x")
	f.ack(t, "probe", f.receive(t, "probe", patient))
	took := time.Since(began)
	f.short = max(f.short, min(6*took, 20*time.Second).Round(time.Second))
	f.long = max(cmp.Or(f.features.RequestBudget, 10*time.Second), min(20*took, 2*time.Minute).Round(time.Second))
}

// Run tests the driver. Each call of open returns a handle on new empty queues.
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
		{"a received message is delivered again after its visibility", testVisibility},
		{"an acked message is not delivered again", testAck},
		{"a nacked message is delivered again after the delay", testNack},
		{"an extended message stays hidden", testExtend},
		{"stale receipts are ignored by Ack and Nack, and a Conflict for Extend", testStale},
		{"a delayed message is delivered after its delay", testDelay},
		{"a message received too often becomes a dead letter", testDeadLetters},
		{"dead letters stay in their queue", testDeadLettersStay},
		{"a waiting receiver wakes on a send", testWakeOnSend},
		{"a waiting receiver wakes when a message becomes visible", testWakeOnTime},
		{"a receiver returns nothing after its wait", testWaitEnds},
		{"an ended context is Canceled", testCanceled},
		{"consumers share messages without overlap", testConsumers},
		{"failing consumers lose no message", testAtLeastOnce},
		{"lost replies lose no message", testLostReplies},
	}
	for _, c := range cases {
		features.run(t, c.name, open, c.run)
	}
	if features.StaleUnnoticed {
		features.run(t, "an unnoticed stale receipt loses no message but its own", open, testStaleUnnoticed)
	}
	if features.Depth {
		features.run(t, "depth counts visible and hidden messages", open, testDepth)
	}
}

func (features Features) run(
	t *testing.T, name string, open func(t *testing.T) queue.Queues, body func(t *testing.T, f *fixture),
) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		inside := func(t *testing.T) {
			q := open(t)
			f := &fixture{Queues: q, other: features.Reopen(t, q), features: features}
			f.times(t)
			body(t, f)
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
	// short is a visibility that a test waits for, long one that does not end
	// during a test unless the test waits for it.
	short, long time.Duration
}

// pass advances the driver's clock by d. For a driver without Advance it does
// nothing: there, time passes while a receiver waits.
func (f *fixture) pass(d time.Duration) {
	if f.features.Advance != nil {
		f.features.Advance(f.Queues, d)
	}
}

// settle lets the goroutines of a bubble run until all of them are blocked.
func (f *fixture) settle() {
	if f.features.Synctest {
		synctest.Wait()
	}
}

// wantQuiet fails the test if a message becomes visible within d.
func (f *fixture) wantQuiet(t *testing.T, name string, d time.Duration) {
	t.Helper()
	wait := d
	if f.features.Advance != nil {
		f.features.Advance(f.Queues, d)
		wait = 0
	}
	msgs, err := f.Receive(t.Context(), name, 1, f.long, wait)
	if err != nil || len(msgs) > 0 {
		t.Fatalf("queue %s: got %d messages, %v, want none for %v", name, len(msgs), err, d)
	}
}

func (f *fixture) send(t *testing.T, name string, bodies ...string) {
	t.Helper()
	if err := f.Send(t.Context(), name, bytesOf(bodies), 0); err != nil {
		t.Fatalf("send to %s: %v", name, err)
	}
}

// receive waits for one message and returns it.
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

// drain receives messages until none is visible.
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

// sorted returns the sorted bodies of the messages.
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

// wantKind fails the test unless err has the kind.
func wantKind(t *testing.T, err error, kind fault.Kind, format string, args ...any) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got error %v (%v), want %v", fmt.Sprintf(format, args...), err, fault.KindOf(err), kind)
	}
}
