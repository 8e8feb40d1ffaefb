package queuetest

import (
	"context"
	"testing"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// reception is what one Receive returned.
type reception struct {
	msgs []queue.Message
	err  error
}

// await starts a Receive in a goroutine and returns once it waits.
func (f *fixture) await(ctx context.Context, name string) <-chan reception {
	got := make(chan reception, 1)
	go func() {
		msgs, err := f.Receive(ctx, name, 1, f.long, patient)
		got <- reception{msgs, err}
	}()
	f.settle()
	return got
}

func testWakeOnSend(t *testing.T, f *fixture) {
	began := time.Now()
	for _, sender := range []queue.Queues{f.Queues, f.other} {
		got := f.await(t.Context(), "work")
		if err := sender.Send(t.Context(), "elsewhere", bytesOf([]string{"x"}), 0); err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(t.Context(), "work", bytesOf([]string{"wake"}), 0); err != nil {
			t.Fatal(err)
		}
		if r := <-got; r.err != nil || len(r.msgs) != 1 || string(r.msgs[0].Body) != "wake" {
			t.Errorf("the waiting receiver got %+v", r)
		}
	}
	if spent := time.Since(began); f.features.Synctest && spent > 0 {
		t.Errorf("waking took %v", spent)
	}
}

func testWakeOnTime(t *testing.T, f *fixture) {
	f.send(t, "work", "x")
	m := f.receive(t, "work", f.short)
	got := f.await(t.Context(), "work")
	f.pass(f.short)
	r := <-got
	if r.err != nil || len(r.msgs) != 1 || r.msgs[0].ID != m.ID {
		t.Fatalf("the waiting receiver got %+v when the visibility was over", r)
	}
	got = f.await(t.Context(), "work")
	if err := f.other.Nack(t.Context(), "work", r.msgs[0].Receipt, 0); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != nil || len(r.msgs) != 1 || r.msgs[0].ID != m.ID {
		t.Errorf("the waiting receiver got %+v after a nack", r)
	}
}

func testWaitEnds(t *testing.T, f *fixture) {
	const wait = 20 * time.Millisecond
	began := time.Now()
	msgs, err := f.Receive(t.Context(), "work", 1, f.short, wait)
	if err != nil || len(msgs) != 0 {
		t.Errorf("got %v, %v", msgs, err)
	}
	if spent := time.Since(began); spent < wait {
		t.Errorf("waited %v only, want %v", spent, wait)
	}
}

func testCanceled(t *testing.T, f *fixture) {
	f.send(t, "work", "x")
	m := f.receive(t, "work", f.long)
	ctx, cancel := context.WithCancel(t.Context())
	got := f.await(ctx, "work")
	cancel()
	wantKind(t, (<-got).err, fault.Canceled, "receive whose context ends")

	_, err := f.Receive(ctx, "work", 1, f.short, 0)
	wantKind(t, err, fault.Canceled, "receive")
	wantKind(t, f.Send(ctx, "work", bytesOf([]string{"y"}), 0), fault.Canceled, "send")
	wantKind(t, f.Extend(ctx, "work", m.Receipt, f.short), fault.Canceled, "extend")
	wantKind(t, f.Ack(ctx, "work", []string{m.Receipt}), fault.Canceled, "ack")
	wantKind(t, f.Nack(ctx, "work", m.Receipt, 0), fault.Canceled, "nack")
	f.wantQuiet(t, "work", f.short)
}
