package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

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
	for h, _ := filesystem.HolderOf(l.hold); !h.Stopped; h, _ = filesystem.HolderOf(l.hold) {
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
