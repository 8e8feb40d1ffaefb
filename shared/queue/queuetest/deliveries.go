package queuetest

import (
	"testing"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

func testVisibility(t *testing.T, f *fixture) {
	f.send(t, "work", "x")
	first := f.receive(t, "work", f.short)
	f.wantQuiet(t, "work", 0)
	f.pass(f.short)
	second := f.receive(t, "work", f.short)
	if second.ID != first.ID || string(second.Body) != "x" || second.Receives != 2 {
		t.Errorf("got %+v after %+v, want the same message, received twice", second, first)
	}
	if second.Receipt == first.Receipt {
		t.Error("both deliveries have the same receipt")
	}
	f.pass(f.short)
	if third := f.receive(t, "work", f.short); third.Receives != 3 {
		t.Errorf("third delivery: received %d times", third.Receives)
	}
}

func testAck(t *testing.T, f *fixture) {
	f.send(t, "work", "a", "b", "c")
	msgs := []queue.Message{f.receive(t, "work", f.short), f.receive(t, "work", f.short), f.receive(t, "work", f.short)}
	f.ack(t, "work", msgs[0], msgs[2])
	f.pass(f.short)
	if m := f.receive(t, "work", f.short); m.ID != msgs[1].ID {
		t.Errorf("got %q again, want %q", m.Body, msgs[1].Body)
	} else {
		f.ack(t, "work", m, m) // twice in one batch
		f.ack(t, "work", m)
	}
	f.wantQuiet(t, "work", 2*f.short)
}

func testNack(t *testing.T, f *fixture) {
	f.send(t, "work", "x")
	m := f.receive(t, "work", f.long)
	if err := f.Nack(t.Context(), "work", m.Receipt, 0); err != nil {
		t.Fatal(err)
	}
	m = f.receive(t, "work", f.long)
	if m.Receives != 2 {
		t.Errorf("received %d times, want 2", m.Receives)
	}
	if err := f.Nack(t.Context(), "work", m.Receipt, 2*f.short); err != nil {
		t.Fatal(err)
	}
	f.wantQuiet(t, "work", f.short)
	f.pass(f.short)
	if m = f.receive(t, "work", f.long); m.Receives != 3 {
		t.Errorf("received %d times, want 3", m.Receives)
	}
}

func testExtend(t *testing.T, f *fixture) {
	f.send(t, "work", "x")
	m := f.receive(t, "work", f.short)
	for range 3 { // the same receipt works each time
		if err := f.Extend(t.Context(), "work", m.Receipt, 2*f.short); err != nil {
			t.Fatal(err)
		}
		f.wantQuiet(t, "work", f.short)
	}
	f.pass(f.short)
	if again := f.receive(t, "work", f.short); again.ID != m.ID || again.Receives != 2 {
		t.Errorf("got %+v, want the message again, received twice", again)
	}
}

func testStale(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.send(t, "work", "x")
	old := f.receive(t, "work", f.short)
	f.pass(f.short)
	hold := min(max(4*f.short, f.long/2), patient/2) // covers the duration of the calls below
	now := f.receive(t, "work", hold)

	stale := []string{"nonsense", "", now.Receipt + "0"}
	if !f.features.StaleUnnoticed {
		stale = append(stale, old.Receipt)
	}
	for _, receipt := range stale {
		wantKind(t, f.Extend(ctx, "work", receipt, f.long), fault.Conflict, "extend with receipt %q", receipt)
		if err := f.Ack(ctx, "work", []string{receipt}); err != nil {
			t.Errorf("ack with receipt %q: %v", receipt, err)
		}
		if err := f.Nack(ctx, "work", receipt, 0); err != nil {
			t.Errorf("nack with receipt %q: %v", receipt, err)
		}
	}
	f.wantQuiet(t, "work", 0) // the nacks changed nothing
	f.pass(hold)
	last := f.receive(t, "work", f.short) // the acks and extends changed nothing either
	// A batch with what is no receipt is acked all the same, each for itself.
	if err := f.Ack(ctx, "work", []string{"nonsense", "", last.Receipt}); err != nil {
		t.Errorf("ack of a batch with what is no receipt: %v", err)
	}
	err := f.Extend(ctx, "work", last.Receipt, f.long)
	if !f.features.StaleUnnoticed || err != nil {
		wantKind(t, err, fault.Conflict, "extend of an acked message")
	}
	if err := f.Nack(ctx, "work", last.Receipt, 0); err != nil {
		t.Errorf("nack of an acked message: %v", err)
	}
	f.wantQuiet(t, "work", 2*f.short)
}

// testStaleUnnoticed uses a stale receipt where its effect is open. It may fail as a
// Conflict, and must do nothing else than what its method does.
func testStaleUnnoticed(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.send(t, "work", "x", "y")
	old := []queue.Message{f.receive(t, "work", f.short), f.receive(t, "work", f.short)}
	f.pass(f.short)
	for _, m := range old {
		if err := f.Extend(ctx, "work", m.Receipt, f.short); err != nil {
			wantKind(t, err, fault.Conflict, "extend with a stale receipt")
		}
		if err := f.Nack(ctx, "work", m.Receipt, 0); err != nil {
			t.Errorf("nack with a stale receipt: %v", err)
		}
	}
	again := f.receive(t, "work", f.long) // no message is lost
	stale := old[0]
	if again.ID == stale.ID {
		stale = old[1]
	}
	f.ack(t, "work", stale) // removes that message, or does nothing
	f.ack(t, "work", again)
	msgs, err := f.Receive(ctx, "work", queue.MaxBatch, f.long, 2*f.short)
	if err != nil || len(msgs) > 1 || len(msgs) == 1 && msgs[0].ID != stale.ID {
		t.Errorf("after the acks: %v, %v, want at most the message that was acked with a stale receipt", msgs, err)
	}
}

func testDeadLetters(t *testing.T, f *fixture) {
	f.send(t, "work", "bad")
	for i := range queue.MaxReceives {
		m := f.receive(t, "work", f.long)
		if m.Receives != i+1 {
			t.Fatalf("delivery %d: received %d times", i+1, m.Receives)
		}
		if err := f.Nack(t.Context(), "work", m.Receipt, 0); err != nil {
			t.Fatal(err)
		}
	}
	f.send(t, "work", "good")
	if m := f.receive(t, "work", f.long); string(m.Body) != "good" {
		t.Fatalf("got %q after %d deliveries", m.Body, queue.MaxReceives)
	}
	f.wantQuiet(t, "work", 0)
	m := f.receive(t, queue.DeadLetterQueue("work"), f.long)
	if string(m.Body) != "bad" || m.Receives < 1 {
		t.Errorf("dead letter is %+v", m)
	}
	f.ack(t, queue.DeadLetterQueue("work"), m)
	f.wantQuiet(t, queue.DeadLetterQueue("work"), 2*f.long)
}

func testDeadLettersStay(t *testing.T, f *fixture) {
	dead := queue.DeadLetterQueue("work")
	f.send(t, dead, "bad")
	for range queue.MaxReceives + 3 {
		m := f.receive(t, dead, f.long)
		if err := f.Nack(t.Context(), dead, m.Receipt, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func testDepth(t *testing.T, f *fixture) {
	d, ok := f.other.(queue.Depther)
	if !ok {
		t.Fatalf("%T is not a queue.Depther", f.other)
	}
	want := func(visible, hidden int) {
		t.Helper()
		v, h, err := d.Depth(t.Context(), "work")
		if err != nil || v != visible || h != hidden {
			t.Fatalf("depth is %d visible and %d hidden, %v; want %d and %d", v, h, err, visible, hidden)
		}
	}
	want(0, 0)
	f.send(t, "work", numbered(5)...)
	f.send(t, "other", "x")
	want(5, 0)
	m := f.receive(t, "work", f.long)
	f.receive(t, "work", f.long)
	want(3, 2)
	f.ack(t, "work", m)
	want(3, 1)
	if err := f.Send(t.Context(), "work", bytesOf([]string{"late"}), f.long); err != nil {
		t.Fatal(err)
	}
	want(3, 2)
	_, _, err := d.Depth(t.Context(), "No Queue")
	wantKind(t, err, fault.Invalid, "depth of a bad name")
}
