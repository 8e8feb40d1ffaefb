package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/subprocess"
)

// process is a running program. Its output goes to files, which outlive it and
// are shown if the test fails.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	stdout string        // path
	stderr string        // path
	done   chan struct{} // closed when it has ended
}

// launch starts a program in its own process group. The group is killed when
// the test ends; the program is killed when the test process dies.
func launch(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return launchIn(t, "", program, args...)
}

// shell starts a line of the shell.
func shell(t *testing.T, line string) *process {
	t.Helper()
	return spawn(t, "", "/bin/sh", "-c", line)
}

// launchIn is launch with a working folder.
func launchIn(t *testing.T, folder, program string, args ...string) *process {
	t.Helper()
	return spawn(t, folder, filepath.Join(binaries, program), args...)
}

func spawn(t *testing.T, folder, path string, args ...string) *process {
	t.Helper()
	logs := t.TempDir()
	p := &process{t: t, name: filepath.Base(path) + " " + strings.Join(args, " "), done: make(chan struct{}),
		stdout: filepath.Join(logs, "stdout"), stderr: filepath.Join(logs, "stderr")}
	stdout, err := os.Create(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close() // the process has its own
	stderr, err := os.Create(p.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = folder, stdout, stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := subprocess.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its outcome is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		p.killGroup()
		if t.Failed() {
			t.Logf("%s\n%s%s", p.name, tail(p.stdout), tail(p.stderr))
		}
	})
	return p
}

const maxTail = 6 << 10 // bytes

// tail returns the end of a file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-maxTail):])
}

// kill kills the program with SIGKILL. The programs that it started go on.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// killGroup kills the program and all that it started, as when the machine
// fails.
func (p *process) killGroup() {
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	// The group may be gone already.
	if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
		p.t.Errorf("kill %s: %v", p.name, err)
	}
	<-p.done
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %s to %s: %v", s, p.name, err)
	}
}

// ended reports whether the program has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exit waits until the program ends and returns its exit code, -1 if a signal
// ended it.
func (p *process) exit() int {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-limit.C:
		p.t.Fatalf("%s did not end within %s", p.name, patience)
		return 0
	}
}

// wantExit waits until the program ends and checks its exit code.
func (p *process) wantExit(code int) {
	p.t.Helper()
	if got := p.exit(); got != code {
		p.t.Errorf("%s ended with exit code %d, want %d:\n%s%s", p.name, got, code, p.stdoutText(), p.stderrText())
	}
}

// stdoutText is what the program has written to standard output so far.
func (p *process) stdoutText() string { return read(p.t, p.stdout) }

// stderrText is what the program has written to standard error so far.
func (p *process) stderrText() string { return read(p.t, p.stderr) }

// wantStderr checks that standard error contains all the texts.
func (p *process) wantStderr(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if got := p.stderrText(); !strings.Contains(got, text) {
			p.t.Errorf("%s does not write %q but:\n%s", p.name, text, got)
		}
	}
}

// do runs the command rollout to its end and checks the exit code. It stops
// the test if that is wrong.
func do(t *testing.T, code int, args ...string) *process {
	t.Helper()
	p := launch(t, rollout, args...)
	p.wantExit(code)
	if t.Failed() {
		t.FailNow()
	}
	return p
}

// parent returns the parent of a process, 0 if the process has ended.
func parent(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(l, "PPid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(text))
			return n
		}
	}
	return 0
}
