package sqlite

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rollout/shared/fault"
)

func openLock(t *testing.T, dir string) *fileLock {
	t.Helper()
	l, err := openFileLock(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestTurnstileLetsOneIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var inside atomic.Int64
	var done sync.WaitGroup
	for range 5 {
		l := openLock(t, dir)
		done.Go(func() {
			for range 200 {
				if err := l.lock(t.Context(), time.Minute); err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				inside.Add(-1)
				if err := l.unlock(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
}

func TestTurnstileIsHandedToTheWaiter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	greedy, waiter, probe := openLock(t, dir), openLock(t, dir), openLock(t, dir)
	if err := greedy.lock(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- waiter.waitLock() }()
	for atTurnstile := false; !atTurnstile; runtime.Gosched() {
		free, err := flock(probe.next, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			t.Fatal(err)
		}
		if free {
			_, err = flock(probe.next, syscall.LOCK_UN)
		}
		if err != nil {
			t.Fatal(err)
		}
		atTurnstile = !free
	}
	if err := greedy.unlock(); err != nil {
		t.Fatal(err)
	}
	if ok, err := greedy.tryLock(); ok || err != nil {
		t.Fatalf("the lock went back to its last holder: %v, %v", ok, err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestTurnstileLosesPatience(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stopped, waiter := openLock(t, dir), openLock(t, dir)
	if err := stopped.lock(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := waiter.lock(t.Context(), time.Millisecond)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "holds it") {
			t.Fatalf("got %v, want unavailable and what to do", err)
		}
	}
	if err := stopped.unlock(); err != nil {
		t.Fatal(err)
	}
	if err := waiter.lock(t.Context(), time.Minute); err != nil {
		t.Errorf("the lock did not come to the one who had waited: %v", err)
	}
}
