package sqlite

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/clock"
)

// polled runs a notifier with a receiver for a minute of a bubble's time, and returns the
// number of polls. wrote is the counter of writes at each of them.
func polled(t *testing.T, rings chan struct{}, wrote func() int64) (polls int) {
	t.Helper()
	n := newNotifier(rings, clock.System{}, slog.New(slog.DiscardHandler))
	n.count = func(context.Context) (int64, error) {
		polls++
		return wrote(), nil
	}
	n.next = func(context.Context, string) (time.Time, error) { return time.Time{}, nil }
	n.wait("work")
	go n.run(t.Context())
	<-time.After(time.Minute)
	close(n.closing)
	<-n.ended
	return polls
}

// While nothing happens, a process with a bell polls a few times a second.
func TestIdleNotifierPollsRarely(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bell        bool
		least, most int
	}{
		"with a bell":    {true, 30, 40},
		"without a bell": {false, 5000, 6001},
	} {
		synctest.Test(t, func(t *testing.T) {
			var rings chan struct{}
			if c.bell {
				rings = make(chan struct{}, 1)
			}
			if polls := polled(t, rings, func() int64 { return 0 }); polls < c.least || polls > c.most {
				t.Errorf("%s: %d polls in a minute", name, polls)
			}
		})
	}
}

// Writes that no ring announces make the notifier poll as without a bell. A single one may
// have been faster than its ring.
func TestNotifierPollsForProcessesThatDoNotRing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writes      int64
		least, most int
	}{
		"one":          {1, 30, 40},
		"one a second": {60, 4000, 5000},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			polls := polled(t, make(chan struct{}, 1), func() int64 {
				return min(c.writes, max(0, int64(time.Since(begin)/time.Second)-9))
			})
			if polls < c.least || polls > c.most {
				t.Errorf("%s: %d polls in a minute", name, polls)
			}
		})
	}
}

// This process's own commits, which ring, and which find what the others wrote, hide no
// process that does not ring.
func TestOwnRingsHideNoProcessThatDoesNotRing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rings, writes, polls := make(chan struct{}, 1), int64(0), 0
		n := newNotifier(rings, clock.System{}, slog.New(slog.DiscardHandler))
		n.count = func(context.Context) (int64, error) { polls++; return writes, nil }
		n.next = func(context.Context, string) (time.Time, error) { return time.Time{}, nil }
		n.wait("work")
		go n.run(t.Context())
		for range 60 {
			<-time.After(500 * time.Millisecond)
			synctest.Wait()
			writes += 2 // another process writes, then this one
			n.notify(&transaction{before: writes - 1, writes: writes})
			rings <- struct{}{}
		}
		if polls < 2500 || polls > 3000 {
			t.Errorf("%d polls in half a minute", polls)
		}
		close(n.closing)
		<-n.ended
	})
}

// A commit of this process while no receiver waits takes no ring from a later receiver.
func TestRingOfAnotherProcessIsHeardAfterAnOwnCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rings, writes := make(chan struct{}, 1), int64(0)
		n := newNotifier(rings, clock.System{}, slog.New(slog.DiscardHandler))
		n.count = func(context.Context) (int64, error) { return writes, nil }
		n.next = func(context.Context, string) (time.Time, error) { return time.Now(), nil }
		first := n.wait("work")
		go n.run(t.Context())
		synctest.Wait() // it has polled, and does so rarely
		n.remove(first)
		writes++
		n.notify(&transaction{before: 0, writes: 1})
		rings <- struct{}{}
		<-time.After(2 * pollEvery) // the ring is over
		w := n.wait("work")
		synctest.Wait()
		began := time.Now()
		writes++
		rings <- struct{}{}
		<-w.hints
		if late := time.Since(began); late > pollEvery {
			t.Errorf("woken %s after the ring", late)
		}
		close(n.closing)
		<-n.ended
	})
}

// A ring wakes receivers at once, and a storm of rings costs no more than polling.
func TestRingsWakeReceiversAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rings, writes, polls := make(chan struct{}), int64(0), 0
		n := newNotifier(rings, clock.System{}, slog.New(slog.DiscardHandler))
		n.count = func(context.Context) (int64, error) { polls++; return writes, nil }
		n.next = func(context.Context, string) (time.Time, error) { return time.Now(), nil }
		w := n.wait("work")
		go n.run(t.Context())
		<-time.After(idlePoll * 3 / 2)
		began := time.Now()
		writes++
		rings <- struct{}{}
		<-w.hints
		if late := time.Since(began); late != 0 {
			t.Errorf("woken %s after the ring", late)
		}
		polls = 0
		for time.Since(began) < 10*time.Second {
			select {
			case rings <- struct{}{}:
			case <-time.After(time.Millisecond):
			}
		}
		if most := int(10*time.Second/pollEvery) + 25; polls > most {
			t.Errorf("%d polls for rings without a pause of 10 s", polls)
		}
		close(n.closing)
		<-n.ended
	})
}

// A receiver is woken when its message becomes visible, not at the next poll.
func TestReceiverIsWokenWhenItsMessageIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier(make(chan struct{}), clock.System{}, slog.New(slog.DiscardHandler))
		n.count = func(context.Context) (int64, error) { return 0, nil }
		w := n.wait("work")
		go n.run(t.Context())
		const delay = 123 * time.Millisecond
		began := time.Now()
		n.expect(w, began.Add(delay))
		<-w.hints
		if d := time.Since(began); d != delay {
			t.Errorf("woken after %s, want %s", d, delay)
		}
		close(n.closing)
		<-n.ended
	})
}

// Commits ring the bell of other processes, here of another State over the folder.
func TestCommitsRingTheBellOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, other := openState(t, dir, Options{}), openState(t, dir, Options{})
	if s.bell.rings == nil {
		t.Fatal("the file of the bell is not watched")
	}
	heard := startBell(t.Context(), s.writer.lock.hold, slog.New(slog.DiscardHandler))
	defer heard.close()
	create(t, other, "a")
	select {
	case <-heard.rings:
	case <-time.After(time.Minute):
		t.Error("no ring")
	}
}
