package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
)

// A worker that runs in another terminal and is stopped during a commit blocks
// all writers. No other process may kill it: `up` and `status` name the process
// and the remedy, and when it is continued the run goes on.
func TestStoppedWorkerThatLocksTheStateIsNamed(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(320))
	want := undisturbed(t, file)
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, smallShards)
	w := launch(t, gpuworker, "--dir", i.dir, "--engine", s.url)
	id := i.submit(file)
	pid := w.cmd.Process.Pid
	eventually(t, "the worker is stopped during a commit", func() bool {
		w.signal(syscall.SIGSTOP)
		for !stopped(t, pid) { // the signal takes effect a moment later
		}
		if locksState(pid) {
			return true
		}
		w.signal(syscall.SIGCONT)
		return false
	})
	names := []string{fmt.Sprintf("process %d (gpuworker) holds it and is stopped", pid),
		fmt.Sprintf("kill -CONT %d", pid)}
	status := launch(t, rollout, "status", "--dir", i.dir)
	eventually(t, "up names it", func() bool { return i.logged(names...) })
	eventually(t, "status names it", func() bool { return status.stderrText() != "" })
	status.wantStderr(names...)
	w.signal(syscall.SIGCONT)
	status.wantExit(0)
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)
}

// stopped reports whether every thread of the process is stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has ended: %v", pid, err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(stat), ") T ") {
			return false
		}
	}
	return true
}

// locksState reports whether the process holds the lock of the state. The lock
// of the bucket, which is for removals, does not count.
func locksState(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasSuffix(to, "state.hold.lock") {
			info, err := os.ReadFile(strings.Replace(f, "/fd/", "/fdinfo/", 1))
			return err == nil && strings.Contains(string(info), "FLOCK")
		}
	}
	return false
}
