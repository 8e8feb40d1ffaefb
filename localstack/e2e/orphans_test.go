package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
)

// helperVariable, in the environment, makes this test program the helper process
// of a test. It has the folder of the programs.
const helperVariable = "ROLLOUT_E2E_HELPER"

// All programs end when the test process is killed, also those that a program
// started, and a worker that is stopped.
func TestProgramsEndWhenTheTestProcessIsKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestHelperProcess$", "-test.v")
	cmd.Env = append(os.Environ(), helperVariable+"="+binaries, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var pids []int
	lines := bufio.NewScanner(out)
	for len(pids) == 0 && lines.Scan() {
		if list, ok := strings.CutPrefix(lines.Text(), "running:"); ok {
			for _, field := range strings.Fields(list) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		} else {
			t.Log(lines.Text())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // it was killed
	if len(pids) != 6 {
		t.Fatalf("the test process has the programs %v, want 6", pids)
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d ends", pid), func() bool { return hasEnded(pid) })
	}
}

// TestHelperProcess is not a test but the process that is killed. It starts a
// supervised server, `rollout up` with two workers, and a third worker, stops one
// of up's workers, prints the process ids, and waits.
func TestHelperProcess(t *testing.T) {
	if os.Getenv(helperVariable) == "" {
		return
	}
	s := serveRestarting(t, "--latency", "100ms")
	i := install(t, s.url, 2, smallShards)
	w := launch(t, gpuworker, "--dir", i.dir, "--engine", s.url)
	i.submit(promptsFile(t, scenarios.MixedPrompts(320)))
	eventually(t, "the workers are ready", func() bool { return len(i.aliveWorkers()) == 3 })
	pids := []int{s.cmd.Process.Pid, i.up.cmd.Process.Pid, w.cmd.Process.Pid}
	for _, p := range pids[:2] {
		pids = append(pids, children(p)...)
	}
	if err := syscall.Kill(pids[len(pids)-1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	fmt.Println("running:", strings.Trim(fmt.Sprint(pids), "[]"))
	time.Sleep(2 * patience)
}

// children returns the processes that a process has started.
func children(pid int) (found []int) {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		if n, err := strconv.Atoi(p.Name()); err == nil && parent(n) == pid {
			found = append(found, n)
		}
	}
	return found
}

// hasEnded reports whether a process has ended, also if its parent has not
// collected it yet.
func hasEnded(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || strings.Contains(string(status), "\nState:\tZ")
}
