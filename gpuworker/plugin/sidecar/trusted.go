package sidecar

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"rollout/shared/fault"
)

// startTrusted starts the program as the worker's user, in its folder. It does not get the
// worker's environment, which may have secrets.
func startTrusted(_ context.Context, o Options, conns chan<- net.Conn) (*process, error) {
	dir, err := os.MkdirTemp("", "rollout-plugin-") // for this user alone
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "make a folder for the plugin's socket")
	}
	socket := filepath.Join(dir, "plugin.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fault.WithKind(fault.Unavailable, err, "listen at the plugin's socket"), os.RemoveAll(dir))
	}
	stdout, stderr := &output{}, &output{}
	args := o.Manifest.Entry.Sidecar.Args
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = o.Dir, stdout, stderr, grace
	cmd.Env = []string{SocketVariable + "=" + socket, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"}
	cmd.SysProcAttr = attributes()
	p := &process{ended: make(chan struct{})}
	signal := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) } // it may have ended
	p.forceful = func() {
		if !p.hasEnded() {
			signal(syscall.SIGKILL)
		}
	}
	p.terminate = func() {
		signal(syscall.SIGTERM)
		timer := time.AfterFunc(grace, p.forceful)
		<-p.ended
		timer.Stop()
	}
	started := make(chan error, 1)
	go func() {
		// The kernel kills the program when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			err = limit(cmd.Process.Pid, o.Manifest.Runtime)
		}
		started <- err
		if cmd.Process == nil {
			return
		}
		err = cmd.Wait()
		signal(syscall.SIGKILL) // what it has left behind
		l.Close()
		_ = os.RemoveAll(dir) // a folder without secrets
		o.report("stdout", stdout.kept.Bytes(), stdout.all)
		o.report("stderr", stderr.kept.Bytes(), stderr.all)
		text := "it ended with the exit code 0"
		if err != nil {
			text = "it ended: " + err.Error()
		}
		p.why = endedError(text, stderr.kept.Bytes())
		close(p.ended)
	}()
	if err := <-started; err != nil {
		err = fault.WithKind(fault.Invalid, err, "start the plugin's program")
		if cmd.Process == nil {
			return nil, errors.Join(err, l.Close(), os.RemoveAll(dir))
		}
		p.kill()
		return nil, err
	}
	go accept(l, conns)
	return p, nil
}

// output keeps the beginning of what a program writes, and counts the rest.
type output struct {
	mu   sync.Mutex
	kept bytes.Buffer
	all  int64
}

// Write implements io.Writer. It never blocks the program.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.Write(b[:min(len(b), keptOutput-o.kept.Len())])
	o.all += int64(len(b))
	return len(b), nil
}
