package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
)

// waitOnline starts a waiter of the online class.
func (f *slotsFixture) waitOnline(name string) {
	go func() {
		if _, err := f.acquireOnline(f.t.Context(), nil, 2); err == nil {
			f.admitted = append(f.admitted, name)
		}
	}()
	synctest.Wait()
}

func sharedSlots(t *testing.T, limit int, share float64) *slotsFixture {
	f := &slotsFixture{slots: newSlots(limit, time.Now), t: t}
	f.online = newOnlineSlots(share)
	return f
}

func TestOnlineRequestsAreAdmittedFirstWithinTheirShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := sharedSlots(t, 4, 0.5)
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			f.wait(name, false, nil)
		}
		f.waitOnline("x")
		f.waitOnline("y")
		f.wantAdmitted("a", "b", "c", "d")
		if _, err := f.acquireOnline(t.Context(), nil, 2); !fault.Is(err, fault.Throttled) {
			t.Errorf("a third one that waits gets %v", err)
		}
		f.release(false)
		f.wantAdmitted("a", "b", "c", "d", "x")
		f.release(false)
		f.wantAdmitted("a", "b", "c", "d", "x", "y")
		f.waitOnline("z") // beyond the share
		f.release(false)
		f.wantAdmitted("a", "b", "c", "d", "x", "y", "e")
		f.release(false)
		f.wantAdmitted("a", "b", "c", "d", "x", "y", "e", "f")
		f.releaseOnline()
		f.wantAdmitted("a", "b", "c", "d", "x", "y", "e", "f", "z")
		if taken, waiting, limit := f.onlineLoad(); taken != 2 || waiting != 0 || limit != 2 {
			t.Errorf("%d of %d online slots are taken, %d wait", taken, limit, waiting)
		}
	})
}

func TestBatchRequestsHaveAllSlotsWithoutOnlineOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := sharedSlots(t, 2, 1)
		f.wait("a", false, nil)
		f.wait("b", false, nil)
		f.wantAdmitted("a", "b")
	})
}

func TestOnlineRequestsWaitWhileAnItemIsAskedAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := sharedSlots(t, 4, 1)
		f.waitOnline("x")
		f.wait("all", true, nil)
		f.waitOnline("y") // must not keep it waiting
		f.wantAdmitted("x")
		f.releaseOnline()
		f.wantAdmitted("x", "all")
		f.release(true)
		f.wantAdmitted("x", "all", "y")
	})
}

func TestOnlineShareOfOneSlotIsThatSlot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share float64
		limit int
		want  int
	}{{0, 64, 0}, {0.01, 64, 1}, {0.5, 1, 1}, {0.5, 64, 32}, {1, 64, 64}} {
		s := newSlots(c.limit, time.Now)
		s.online = newOnlineSlots(c.share)
		if _, _, limit := s.onlineLoad(); limit != c.want {
			t.Errorf("a share of %v of %d slots is %d, want %d", c.share, c.limit, limit, c.want)
		}
	}
}

// At the only slot, batch requests get their part too.
func TestOnlineAndBatchRequestsTakeTurnsAtTheOnlySlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := sharedSlots(t, 1, 0.5)
		f.wait("a", false, nil)
		f.wait("b", false, nil)
		f.wait("c", false, nil)
		f.waitOnline("x")
		f.waitOnline("y")
		f.wantAdmitted("a")
		f.release(false)
		f.wantAdmitted("a", "x")
		f.releaseOnline()
		f.wantAdmitted("a", "x", "b")
		f.release(false)
		f.wantAdmitted("a", "x", "b", "y")
		f.waitOnline("z")
		f.releaseOnline()
		f.wantAdmitted("a", "x", "b", "y", "c")
		f.release(false)
		f.wantAdmitted("a", "x", "b", "y", "c", "z")
		f.waitOnline("w") // while no batch request waits, it has no turn to wait for
		f.releaseOnline()
		f.wantAdmitted("a", "x", "b", "y", "c", "z", "w")
	})
}

// Online requests that wait for the pool's limit count as waiting, and keep their place.
func TestOnlineRequestsThatWaitForTheLimitCountAsWaiting(t *testing.T) {
	t.Parallel()
	s := newSlots(2, time.Now)
	s.online = newOnlineSlots(1)
	for n := range 2 {
		if _, err := s.acquireOnline(t.Context(), nil, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.leaveForLimit(1); n == 0 && err != nil || n == 1 && !fault.Is(err, fault.Throttled) {
			t.Errorf("request %d that would wait gets %v", n, err)
		}
	}
	if taken, waiting, _ := s.onlineLoad(); taken != 0 || waiting != 1 {
		t.Errorf("%d online slots are taken, %d wait, want one that waits", taken, waiting)
	}
	if !s.tryAfterLimit(true) {
		t.Error("there is no slot after the wait")
	}
	if taken, waiting, _ := s.onlineLoad(); taken != 1 || waiting != 0 {
		t.Errorf("%d online slots are taken, %d wait, want one that is taken", taken, waiting)
	}
}

// While both wait under a limit, online requests begin first, and no more of them than their
// share after a burst.
func TestOnlineCreditKeepsToTheShare(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.25, 0.5, 0.9} {
		c := newOnlineCredit(share)
		onlineOnes := 0
		const all = 10_000
		for range all {
			if c.has() {
				c.spend()
				onlineOnes++
			} else {
				c.earn()
			}
		}
		if got := float64(onlineOnes) / all; got < share-0.01 || got > share+0.01 {
			t.Errorf("with a share of %v, %v of the requests are online", share, got)
		}
	}
	if c := newOnlineCredit(1); !c.has() {
		t.Error("with a share of 1 an online request waits")
	}
}
