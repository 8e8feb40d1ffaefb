package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/shared/fault"
)

func TestTheHoldersAmongTheSystemsLocks(t *testing.T) {
	t.Parallel()
	const locks = `1: POSIX  ADVISORY  READ  11 fe:00:42 128 128
2: FLOCK  ADVISORY  WRITE 12 fe:00:42 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fe:00:42 0 EOF
3: FLOCK  ADVISORY  WRITE 14 fe:00:142 0 EOF
4: FLOCK  ADVISORY  READ  15 00:1f:42 0 EOF
5: FLOCK  ADVISORY  WRITE -1 00:1f:42 0 EOF
6: FLOCK
`
	if got := flocks([]byte(locks), 42); !slices.Equal(got, []int{12, 15}) {
		t.Errorf("holders are %v, want 12 and, on another disk, 15", got)
	}
}

// playStop stops the process, as a debugger would, while it holds the lock.
func playStop(ctx context.Context, s *State, load int) error {
	s.writer.steps.beforeCommit = func() {
		fmt.Println("child: stops")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it may return before it takes effect
		select {}
	}
	return writeMuch(ctx, s, load)
}

// A process that was stopped amid a commit keeps everybody from writing: who
// waits says which one it is, and what to do.
func TestAStoppedHolderIsNamed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells who holds a lock")
	}
	dir := t.TempDir()
	child, lines := startChild(t, "stop amid a commit", dir, 1)
	if got := said(lines); got != "stops" {
		t.Fatalf("the child said %q", got)
	}
	l := openLock(t, dir)
	for h, _ := holderOf(l.hold); !h.stopped; h, _ = holderOf(l.hold) {
		runtime.Gosched()
	}
	err := l.lock(t.Context(), time.Millisecond)
	pid := child.Process.Pid
	for _, text := range []string{filepath.Join(dir, "state.hold.lock"), fmt.Sprintf("process %d", pid), "is stopped", fmt.Sprintf("kill -CONT %d", pid), fmt.Sprintf("kill -9 %d", pid)} {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want unavailable and %q", err, text)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if err := l.lock(t.Context(), time.Minute); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
