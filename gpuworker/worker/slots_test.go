package worker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// places is a set of slots and who came in, in order.
type places struct {
	*slots
	t    *testing.T
	came []string
}

// wants lets somebody wait for a place, or for all, until stopping; he is in
// the queue when it returns.
func (p *places) wants(name string, all bool, stopping <-chan struct{}) {
	go func() {
		if p.take(p.t.Context(), stopping, all) {
			p.came = append(p.came, name)
		}
	}()
	synctest.Wait()
}

func (p *places) wantCame(names ...string) {
	p.t.Helper()
	synctest.Wait()
	if !slices.Equal(p.came, names) {
		p.t.Errorf("let in: %v, want %v", p.came, names)
	}
}

func TestSlotsAreGivenInTheOrderOfComing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &places{slots: newSlots(2), t: t}
		for _, name := range []string{"a", "b", "c", "d"} {
			p.wants(name, false, nil)
		}
		p.wantCame("a", "b")
		p.leave(false)
		p.wantCame("a", "b", "c")
		p.leave(false)
		p.wantCame("a", "b", "c", "d")
	})
}

func TestWhoWantsAllSlotsIsAloneAndIsNotPassedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &places{slots: newSlots(4), t: t}
		p.wants("a", false, nil)
		p.wants("b", false, nil)
		p.wants("all", true, nil)
		p.wants("c", false, nil)
		p.wants("all too", true, nil)
		p.wants("d", false, nil)
		p.leave(false)
		p.wantCame("a", "b")
		p.leave(false)
		p.wantCame("a", "b", "all")
		p.leave(true)
		p.wantCame("a", "b", "all", "c")
		p.leave(false)
		p.wantCame("a", "b", "all", "c", "all too")
		p.leave(true)
		p.wantCame("a", "b", "all", "c", "all too", "d")
	})
}

func TestWhoGivesUpWaitingIsInNobodysWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &places{slots: newSlots(2), t: t}
		p.wants("a", false, nil)
		stop := make(chan struct{})
		p.wants("all", true, stop)
		p.wants("b", false, nil)
		p.wantCame("a")
		close(stop)
		p.wantCame("a", "b")

		p.wants("late", false, stop) // stopped before it came
		p.leave(false)
		p.leave(false)
		p.wantCame("a", "b")
		p.wants("c", false, nil)
		p.wants("d", false, nil)
		p.wantCame("a", "b", "c", "d")
	})
}

func TestSlotsMayBecomeMoreAndFewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &places{slots: newSlots(3), t: t}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			p.wants(name, false, nil)
		}
		p.resize(1)
		p.leave(false)
		p.leave(false)
		p.wantCame("a", "b", "c") // one is taken still, and one is all there are
		p.leave(false)
		p.wantCame("a", "b", "c", "d")
		p.resize(2)
		p.wantCame("a", "b", "c", "d", "e")
		p.resize(-1)
		if p.size() != 1 {
			t.Errorf("%d places, want one at least", p.size())
		}
	})
}

// A stop and a place that come at the same moment leave no place behind that
// nobody has.
func TestNoSlotIsLost(t *testing.T) {
	t.Parallel()
	p := newSlots(1)
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		p.take(ctx, nil, false)
		got := make(chan bool)
		go func() { got <- p.take(ctx, nil, false) }()
		go cancel()
		p.leave(false)
		if <-got {
			p.leave(false)
		}
	}
	if !p.take(t.Context(), nil, true) {
		t.Error("a place is taken by nobody")
	}
}

func TestTakingASlotAllocatesNothing(t *testing.T) {
	p := newSlots(2)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		p.take(ctx, nil, false)
		p.leave(false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
