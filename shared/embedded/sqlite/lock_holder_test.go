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

// runStop stops the process, as a debugger would, while it holds the lock.
func runStop(ctx context.Context, s *State, load int) error {
	s.writer.hooks.beforeCommit = func() {
		fmt.Println("child: stops")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // may return before it takes effect
		select {}
	}
	return writeMuch(ctx, s, load)
}

// A process that is stopped during a commit blocks all writers. Their error names the
// process and the remedy.
func TestLockErrorNamesStoppedHolder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports the holder of a lock")
	}
	dir := t.TempDir()
	child, lines := startChild(t, "stop before commit", dir, 1)
	if got := nextLine(lines); got != "stops" {
		t.Fatalf("the child wrote %q", got)
	}
	l := openLock(t, dir)
	for h, _ := filesystem.HolderOf(l.hold); !h.Stopped; h, _ = filesystem.HolderOf(l.hold) {
		runtime.Gosched()
	}
	err := l.lock(t.Context(), time.Millisecond)
	pid := child.Process.Pid
	for _, text := range []string{
		filepath.Join(dir, "state.hold.lock"), fmt.Sprintf("process %d", pid), "is stopped",
		fmt.Sprintf("kill -CONT %d", pid), fmt.Sprintf("kill -9 %d", pid),
	} {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), text) {
			t.Errorf("lock = %v, want Unavailable with %q", err, text)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // reports the kill
	if err := l.lock(t.Context(), time.Minute); err != nil {
		t.Errorf("lock after the holder was killed = %v", err)
	}
}
