package queuetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

func testSend(t *testing.T, f *fixture) {
	body := []byte(`{"run":"01J","shard":7}` + "\n\tümläut ✓")
	want := string(body)
	if err := f.Send(t.Context(), "work", [][]byte{body}, 0); err != nil {
		t.Fatal(err)
	}
	copy(body, "SCRIBBLE")
	m := f.receive(t, "work", f.short)
	if string(m.Body) != want || m.Receives != 1 {
		t.Errorf("got %q, received %d times, want %q, once", m.Body, m.Receives, want)
	}
	copy(m.Body, "SCRIBBLE")
	f.pass(f.short)
	if again := f.receive(t, "work", f.short); string(again.Body) != want {
		t.Errorf("the receiver changed the stored body: %q", again.Body)
	}
	if err := f.Send(t.Context(), "work", nil, 0); err != nil {
		t.Errorf("send of zero messages: %v", err)
	}
	if err := f.Ack(t.Context(), "work", nil); err != nil {
		t.Errorf("ack of zero messages: %v", err)
	}
}

func testLargeBatch(t *testing.T, f *fixture) {
	want := numbered(queue.MaxBatch*12 + 3)
	f.send(t, "work", want...)
	few, err := f.other.Receive(t.Context(), "work", 3, f.long, 0)
	if err != nil || len(few) == 0 || len(few) > 3 {
		t.Fatalf("receive of up to 3: got %d messages, %v", len(few), err)
	}
	rest, err := drain(t.Context(), f.other, "work", f.long)
	if err != nil {
		t.Fatal(err)
	}
	if got := sorted(append(few, rest...)); !slices.Equal(got, want) {
		t.Errorf("got %d messages, want %d: %q", len(got), len(want), got)
	}
	f.ack(t, "work", append(few, rest...)...)
	f.wantQuiet(t, "work", 2*f.long)
}

func testSeparate(t *testing.T, f *fixture) {
	f.send(t, "a", "for a")
	f.send(t, "b", "for b")
	a, b := f.receive(t, "a", f.long), f.receive(t, "b", f.long)
	if string(a.Body) != "for a" || string(b.Body) != "for b" {
		t.Fatalf("got %q in a and %q in b", a.Body, b.Body)
	}
	f.wantQuiet(t, "a", 0)
	f.wantQuiet(t, "absent", 0)
	f.ack(t, "b", b)
	if err := f.Nack(t.Context(), "a", a.Receipt, 0); err != nil {
		t.Fatal(err)
	}
	f.receive(t, "a", f.long)
}

func testDelay(t *testing.T, f *fixture) {
	if err := f.Send(t.Context(), "work", bytesOf([]string{"late"}), 2*f.short); err != nil {
		t.Fatal(err)
	}
	f.send(t, "work", "now")
	if m := f.receive(t, "work", f.long); string(m.Body) != "now" {
		t.Fatalf("got %q first", m.Body)
	}
	f.wantQuiet(t, "work", f.short)
	f.pass(f.short)
	if m := f.receive(t, "work", f.long); string(m.Body) != "late" || m.Receives != 1 {
		t.Errorf("got %+v", m)
	}
}

func testLimits(t *testing.T, f *fixture) {
	ctx := t.Context()
	largest := strings.Repeat("b", queue.MaxBody)
	longest := strings.Repeat("n", queue.MaxName)
	f.send(t, longest, largest)
	if m := f.receive(t, longest, f.long); string(m.Body) != largest {
		t.Errorf("the largest body has %d bytes after delivery", len(m.Body))
	}
	f.wantQuiet(t, queue.DeadLetterQueue(longest), 0)

	for what, body := range map[string]string{"over the limit": largest + "b", "empty": "", "not UTF-8": "\xff"} {
		err := f.Send(ctx, "work", bytesOf([]string{"fine", body}), 0)
		wantKind(t, err, fault.Invalid, "send of a body that is %s", what)
	}
	f.wantQuiet(t, "work", 0)

	for _, name := range []string{"", "Work", "a_b", "a b", "a/b", "ü", longest + "n", "-dead"} {
		wantKind(t, f.Send(ctx, name, bytesOf([]string{"x"}), 0), fault.Invalid, "send to %q", name)
		_, err := f.Receive(ctx, name, 1, f.short, 0)
		wantKind(t, err, fault.Invalid, "receive from %q", name)
		wantKind(t, f.Extend(ctx, name, "x", f.short), fault.Invalid, "extend in %q", name)
		wantKind(t, f.Ack(ctx, name, []string{"x"}), fault.Invalid, "ack in %q", name)
		wantKind(t, f.Nack(ctx, name, "x", 0), fault.Invalid, "nack in %q", name)
	}
	for _, d := range []time.Duration{-1, queue.MaxVisibility + 1} {
		wantKind(t, f.Send(ctx, "work", bytesOf([]string{"x"}), d), fault.Invalid, "send with delay %v", d)
		wantKind(t, f.Nack(ctx, "work", "x", d), fault.Invalid, "nack with delay %v", d)
		wantKind(t, f.Extend(ctx, "work", "x", d), fault.Invalid, "extend by %v", d)
		_, err := f.Receive(ctx, "work", 1, d, 0)
		wantKind(t, err, fault.Invalid, "receive with visibility %v", d)
	}
	_, err := f.Receive(ctx, "work", 1, 0, 0)
	wantKind(t, err, fault.Invalid, "receive without visibility")
	_, err = f.Receive(ctx, "work", 1, f.short, -1)
	wantKind(t, err, fault.Invalid, "receive with a negative wait")
	for _, most := range []int{-1, 0, queue.MaxReceive + 1} {
		_, err := f.Receive(ctx, "work", most, f.short, 0)
		wantKind(t, err, fault.Invalid, "receive of %d", most)
	}
}
