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

func TestFileLockExcludesOthers(t *testing.T) {
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
					t.Errorf("%d holders at once, want 1", n)
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

func TestUnlockedFileLockGoesToWaiter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	greedy, waiter, probe := openLock(t, dir), openLock(t, dir), openLock(t, dir)
	if err := greedy.lock(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- waiter.waitLock() }()
	for waiting := false; !waiting; runtime.Gosched() {
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
		waiting = !free
	}
	if err := greedy.unlock(); err != nil {
		t.Fatal(err)
	}
	if ok, err := greedy.tryLock(); ok || err != nil {
		t.Fatalf("the last holder got the lock again: %v, %v", ok, err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestLockTimesOutWithRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stopped, waiter := openLock(t, dir), openLock(t, dir)
	if err := stopped.lock(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := waiter.lock(t.Context(), time.Millisecond)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "holds it") {
			t.Fatalf("lock = %v, want Unavailable with a remedy", err)
		}
	}
	if err := stopped.unlock(); err != nil {
		t.Fatal(err)
	}
	if err := waiter.lock(t.Context(), time.Minute); err != nil {
		t.Errorf("lock after the release = %v", err)
	}
}
