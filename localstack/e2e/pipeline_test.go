package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rollout/shared/core/run"
)

// pipelineConfig has the built-in model in a group of three processes.
const pipelineConfig = `
[[pool]]
name = "default"
model = "rollout/tiny"
executor = "pipeline"
`

// ranks returns the processes of the mesh, in the order of their ranks: the group's worker started
// them with a hidden argument. Each is a child of a process of the installation.
func (i *testInstallation) ranks() (pids []int) {
	i.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		i.t.Fatal(err)
	}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(text), "\x00pipeline-rank\x00") {
			continue // it has ended, or is another program
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && isBelow(pid, i.up.cmd.Process.Pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isBelow reports whether a process is a child of another one, or of its children.
func isBelow(pid, ancestor int) bool {
	for pid > 1 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		// The name in parentheses may have spaces; the state and the parent follow it.
		rest := string(text)[strings.LastIndexByte(string(text), ')')+1:]
		if pid, err = strconv.Atoi(strings.Fields(rest)[1]); err != nil {
			return false
		}
		if pid == ancestor {
			return true
		}
	}
	return false
}

// A group of processes answers with the bytes of the engine without a pipeline, also when any of
// its processes is killed: rank 0, which is the worker, or one that generates. No rank is left.
func TestKilledRanksDoNotChangeTheAnswers(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc")
	}
	var rows strings.Builder
	for n := range 60 {
		fmt.Fprintf(&rows, `{"id":"p%d","prompt":"And in the beginning %d","max_tokens":%d}`+"\n", n, n, 4+n%24)
	}
	file := promptsFile(t, rows.String())
	whole := install(t, "tiny", 0, smallShards)
	id := whole.submit(file)
	whole.await(id, run.Completed)
	want := whole.outcome(id)
	whole.up.signal(syscall.SIGTERM)
	whole.up.wantExit(0)

	i := install(t, "tiny", 1, smallShards+pipelineConfig)
	id = i.submit(file)
	answered := func(n int) bool {
		s, ok := i.show(id)
		return ok && (s.Phase.Ended() || int(s.Items.Done) >= n)
	}
	for victim := range 3 {
		eventually(t, "a part of the run is answered", func() bool { return answered(8 + 16*victim) })
		if victim == 0 {
			w := i.aliveWorkers()[0]
			_ = syscall.Kill(w.PID, syscall.SIGKILL)
			continue
		}
		var ranks []int
		eventually(t, "a group runs", func() bool { ranks = i.ranks(); return len(ranks) >= 2 || answered(60) })
		if len(ranks) >= victim {
			_ = syscall.Kill(ranks[victim-1], syscall.SIGKILL) // it may have ended
		}
	}
	i.await(id, run.Completed)
	wantSame(t, i.outcome(id), want)
	ranks := i.ranks()
	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	eventually(t, "no rank is left", func() bool {
		for _, pid := range ranks {
			if syscall.Kill(pid, 0) == nil {
				return false
			}
		}
		return true
	})
}
