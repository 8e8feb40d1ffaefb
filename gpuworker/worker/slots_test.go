package worker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// slotsFixture has slots and records in which order waiters are admitted.
type slotsFixture struct {
	*slots
	t        *testing.T
	admitted []string
}

// wait starts a waiter for one slot, or for all. The waiter is in the queue, or
// admitted, when wait returns.
func (f *slotsFixture) wait(name string, all bool, stopping <-chan struct{}) {
	go func() {
		if f.acquire(f.t.Context(), stopping, all) {
			f.admitted = append(f.admitted, name)
		}
	}()
	synctest.Wait()
}

func (f *slotsFixture) wantAdmitted(names ...string) {
	f.t.Helper()
	synctest.Wait()
	if !slices.Equal(f.admitted, names) {
		f.t.Errorf("admitted: %v, want %v", f.admitted, names)
	}
}

func TestSlotsAreGivenInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(2), t: t}
		for _, name := range []string{"a", "b", "c", "d"} {
			f.wait(name, false, nil)
		}
		f.wantAdmitted("a", "b")
		f.release(false)
		f.wantAdmitted("a", "b", "c")
		f.release(false)
		f.wantAdmitted("a", "b", "c", "d")
	})
}

func TestWaiterForAllSlotsIsAloneAndNotOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(4), t: t}
		f.wait("a", false, nil)
		f.wait("b", false, nil)
		f.wait("all", true, nil)
		f.wait("c", false, nil)
		f.wait("all too", true, nil)
		f.wait("d", false, nil)
		f.release(false)
		f.wantAdmitted("a", "b")
		f.release(false)
		f.wantAdmitted("a", "b", "all")
		f.release(true)
		f.wantAdmitted("a", "b", "all", "c")
		f.release(false)
		f.wantAdmitted("a", "b", "all", "c", "all too")
		f.release(true)
		f.wantAdmitted("a", "b", "all", "c", "all too", "d")
	})
}

func TestStoppedWaiterDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(2), t: t}
		f.wait("a", false, nil)
		stop := make(chan struct{})
		f.wait("all", true, stop)
		f.wait("b", false, nil)
		f.wantAdmitted("a")
		close(stop)
		f.wantAdmitted("a", "b")

		f.wait("late", false, stop) // stopped before it arrived
		f.release(false)
		f.release(false)
		f.wantAdmitted("a", "b")
		f.wait("c", false, nil)
		f.wait("d", false, nil)
		f.wantAdmitted("a", "b", "c", "d")
	})
}

func TestSlotsLimitMayRiseAndFall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(3), t: t}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			f.wait(name, false, nil)
		}
		f.resize(1)
		f.release(false)
		f.release(false)
		f.wantAdmitted("a", "b", "c") // one slot is still taken, and the limit is one
		f.release(false)
		f.wantAdmitted("a", "b", "c", "d")
		f.resize(2)
		f.wantAdmitted("a", "b", "c", "d", "e")
		f.resize(-1)
		if f.size() != 1 {
			t.Errorf("the limit is %d, want at least 1", f.size())
		}
	})
}

// A waiter that is cancelled at the moment of its admission gives the slot back.
func TestNoSlotIsLost(t *testing.T) {
	t.Parallel()
	f := newSlots(1)
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		f.acquire(ctx, nil, false)
		got := make(chan bool)
		go func() { got <- f.acquire(ctx, nil, false) }()
		go cancel()
		f.release(false)
		if <-got {
			f.release(false)
		}
	}
	if !f.acquire(t.Context(), nil, true) {
		t.Error("a slot is lost")
	}
}

func TestAcquireAllocatesNothing(t *testing.T) {
	f := newSlots(2)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		f.acquire(ctx, nil, false)
		f.release(false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
