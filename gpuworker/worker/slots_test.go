package worker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/core/identity"
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
		if f.acquire(f.t.Context(), stopping, claimant{run: identity.RunID(name), weight: 1}, all) {
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
		f := &slotsFixture{slots: newSlots(2, time.Now), t: t}
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
		f := &slotsFixture{slots: newSlots(4, time.Now), t: t}
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
		f := &slotsFixture{slots: newSlots(2, time.Now), t: t}
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
		f := &slotsFixture{slots: newSlots(3, time.Now), t: t}
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
	f := newSlots(1, time.Now)
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		f.acquire(ctx, nil, claimant{}, false)
		got := make(chan bool)
		go func() { got <- f.acquire(ctx, nil, claimant{}, false) }()
		go cancel()
		f.release(false)
		if <-got {
			f.release(false)
		}
	}
	if !f.acquire(t.Context(), nil, claimant{}, true) {
		t.Error("a slot is lost")
	}
}

func TestAcquireAllocatesNothing(t *testing.T) {
	f := newSlots(2, time.Now)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		f.acquire(ctx, nil, claimant{}, false)
		f.release(false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// busyRun begins requests of a run, one after the other, that each take d, until ctx ends.
func (f *slotsFixture) busyRun(ctx context.Context, name string, weight float64, d time.Duration, begun *int) {
	go func() {
		for f.acquire(ctx, nil, claimant{run: identity.RunID(name), weight: weight}, false) {
			*begun++
			go func() {
				time.Sleep(d)
				f.release(false)
			}()
		}
	}()
}

// All requests end in bursts, at the same times. The next waiter of a run comes only after
// its last one was admitted, and yet the runs get their shares.
func TestRunsShareSlotsByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(32, time.Now), t: t}
		f.share(true)
		weights := []float64{1, 1, 2, 4, 8}
		begun := make([]int, len(weights))
		ctx, cancel := context.WithCancel(t.Context())
		for i, w := range weights {
			f.busyRun(ctx, string(rune('a'+i)), w, 50*time.Millisecond, &begun[i])
		}
		time.Sleep(10 * time.Second)
		cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		all := 0
		for _, n := range begun {
			all += n
		}
		if all < 32*199 {
			t.Errorf("%d requests in 10 s: slots were free", all)
		}
		for i, n := range begun {
			if want := float64(all) * weights[i] / 16; float64(n) < 0.97*want || float64(n) > 1.03*want {
				t.Errorf("a run of weight %v began %d of %d requests, want about %.0f", weights[i], n, all, want)
			}
		}
	})
}

// A run that got a slot and has nothing more to ask delays the others for a moment alone.
func TestSlotIsKeptForAnAbsentRunOnlyForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(1, time.Now), t: t}
		f.share(true)
		f.wait("light", false, nil)
		f.wait("light", false, nil)
		f.release(false)
		go f.acquire(t.Context(), nil, claimant{run: "heavy", weight: 100}, false)
		synctest.Wait()
		f.wait("light", false, nil)
		f.release(false)
		f.wantAdmitted("light", "light") // the heavy run waits
		f.release(false)
		f.wantAdmitted("light", "light") // the slot is kept for it
		time.Sleep(awayTime)
		f.wantAdmitted("light", "light", "light")
	})
}

func TestFreeSlotsAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slotsFixture{slots: newSlots(8, time.Now), t: t}
		f.share(true)
		f.acquire(t.Context(), nil, claimant{run: "heavy", weight: 100}, false)
		f.wait("light", false, nil)
		f.wait("light", false, nil)
		f.wantAdmitted("light", "light")
	})
}
