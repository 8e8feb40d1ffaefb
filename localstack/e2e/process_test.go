package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a running program. Its output goes to files, which outlive it and
// are shown if the test fails.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	stdout string // path
	stderr string // path
	over   chan struct{}
}

// launch starts a program in a process group of its own; the group is killed when
// the test ends, with all that the program started.
func launch(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return launchIn(t, "", program, args...)
}

// shell runs a line of the shell.
func shell(t *testing.T, line string) *process {
	t.Helper()
	return spawn(t, "", "/bin/sh", "-c", line)
}

// launchIn starts a program in a folder.
func launchIn(t *testing.T, folder, program string, args ...string) *process {
	t.Helper()
	return spawn(t, folder, filepath.Join(binaries, program), args...)
}

func spawn(t *testing.T, folder, path string, args ...string) *process {
	t.Helper()
	logs := t.TempDir()
	p := &process{t: t, name: filepath.Base(path) + " " + strings.Join(args, " "), over: make(chan struct{}),
		stdout: filepath.Join(logs, "stdout"), stderr: filepath.Join(logs, "stderr")}
	out, err := os.Create(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() // the process has its own
	errs, err := os.Create(p.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = folder, out, errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its outcome is in ProcessState
		close(p.over)
	}()
	t.Cleanup(p.end)
	return p
}

// end kills the group, and shows what it said if the test failed.
func (p *process) end() {
	p.crash()
	if p.t.Failed() {
		p.t.Logf("%s\n%s%s", p.name, tail(p.stdout), tail(p.stderr))
	}
}

const maxTail = 6 << 10

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-maxTail):])
}

// kill ends the program alone, without notice: what it started goes on.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.over
}

// crash ends the program and all that it started, without notice, as when the
// machine fails.
func (p *process) crash() {
	// The group may be gone already.
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
		p.t.Errorf("kill %s: %v", p.name, err)
	}
	<-p.over
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %s to %s: %v", s, p.name, err)
	}
}

// ended reports whether the program is over.
func (p *process) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// exit waits for the program's end and returns its exit code; −1 if a signal
// ended it.
func (p *process) exit() int {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-p.over:
		return p.cmd.ProcessState.ExitCode()
	case <-limit.C:
		p.t.Fatalf("%s did not end within %s", p.name, patience)
		return 0
	}
}

// wantExit waits for the program's end with the exit code.
func (p *process) wantExit(code int) {
	p.t.Helper()
	if got := p.exit(); got != code {
		p.t.Errorf("%s ended with exit code %d, want %d; it said:\n%s%s", p.name, got, code, p.stdoutText(), p.stderrText())
	}
}

// stdoutText is what it wrote to standard output so far.
func (p *process) stdoutText() string { return read(p.t, p.stdout) }

// stderrText is what it wrote to standard error so far.
func (p *process) stderrText() string { return read(p.t, p.stderr) }

// wantStderr checks that standard error has the texts.
func (p *process) wantStderr(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if said := p.stderrText(); !strings.Contains(said, text) {
			p.t.Errorf("%s does not say %q but:\n%s", p.name, text, said)
		}
	}
}

// do runs rollout to its end, wants the exit code, and returns it.
func do(t *testing.T, code int, args ...string) *process {
	t.Helper()
	p := launch(t, rollout, args...)
	p.wantExit(code)
	if t.Failed() {
		t.FailNow() // what comes next stands on it
	}
	return p
}
