// Package capacitytest is the conformance suite of the capacity port. Every driver
// must pass it, against the real machine or a fake of the cloud's metadata
// service. Only tests import it.
package capacitytest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// Machine is a source together with a way to send it preemption notices.
type Machine struct {
	Source capacity.Source
	// Notify makes the machine announce its end with the notice.
	Notify func(t *testing.T, n capacity.Notice)
	// Lead is the lead of every notice, if the provider's notices do not say one; 0 means
	// that they do.
	Lead time.Duration
}

// expect returns the notice that the machine delivers for n.
func (m Machine) expect(n capacity.Notice) capacity.Notice {
	n.Lead = cmp.Or(m.Lead, n.Lead)
	return n
}

// Run tests the driver. Each call of open returns a new machine.
func Run(t *testing.T, open func(t *testing.T) Machine) {
	t.Run("the inventory is plausible", func(t *testing.T) {
		t.Parallel()
		inventory, err := open(t).Source.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if inventory.CPUs < 1 || inventory.MemoryBytes < 1<<20 || inventory.GPUs == nil {
			t.Errorf("Inventory = %+v, want CPUs, memory and a list of GPUs that may be empty", inventory)
		}
		seen := map[int]bool{}
		for _, gpu := range inventory.GPUs {
			if gpu.Index < 0 || seen[gpu.Index] {
				t.Errorf("GPU %+v: its index is negative or not unique", gpu)
			}
			seen[gpu.Index] = true
		}
	})
	t.Run("an inventory with a canceled context is Canceled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := open(t).Source.Inventory(ctx); !fault.Is(err, fault.Canceled) {
			t.Errorf("Inventory = %v, want Canceled", err)
		}
	})
	t.Run("a notice is delivered with reason and lead", func(t *testing.T) {
		t.Parallel()
		m := open(t)
		notices := m.Source.Notices(t.Context())
		want := m.expect(capacity.Notice{Reason: "spot", Lead: 30 * time.Second})
		m.Notify(t, want)
		if got := <-notices; got != want {
			t.Errorf("notice %+v, want %+v", got, want)
		}
	})
	t.Run("a notice before the first listener is delivered", func(t *testing.T) {
		t.Parallel()
		m := open(t)
		want := m.expect(capacity.Notice{Reason: "spot", Lead: 2 * time.Minute})
		m.Notify(t, want)
		if got := <-m.Source.Notices(t.Context()); got != want {
			t.Errorf("notice %+v, want %+v", got, want)
		}
	})
	t.Run("every listener gets the notice", func(t *testing.T) {
		t.Parallel()
		m := open(t)
		one, two := m.Source.Notices(t.Context()), m.Source.Notices(t.Context())
		want := m.expect(capacity.Notice{Reason: "spot", Lead: 30 * time.Second})
		m.Notify(t, want)
		if a, b := <-one, <-two; a != want || b != want {
			t.Errorf("notices %+v and %+v, want %+v", a, b, want)
		}
	})
	t.Run("the channel closes when the context ends, also with an unread notice", func(t *testing.T) {
		t.Parallel()
		for _, notified := range []bool{false, true} {
			m := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			notices := m.Source.Notices(ctx)
			if notified {
				m.Notify(t, capacity.Notice{Reason: "spot", Lead: time.Second})
			}
			cancel()
			for range notices { // ends when the channel is closed
			}
		}
	})
}
