// Package supervise keeps worker processes running. It restarts a process that
// ends, with a backoff while processes end early, and drains it when it is asked
// to stop.
//
// A process's exit code comes out. The package knows neither work nor stores, and
// the caller decides what a code means.
package supervise

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Waits before a restart. They double while processes end early, within stableAfter
// of their start. The longest wait is short, because it delays the work after the
// cause is fixed.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 3 * time.Second
	stableAfter  = 10 * time.Second
)

// outputDelay is how long the output of a process that has ended is read on, if a process that it started still has it
// open.
const outputDelay = time.Second

// Exit codes of every worker process after which it is not restarted.
const (
	ExitUsage   = 2 // its arguments or config are wrong
	ExitDamaged = 3 // the state is damaged
)

// Worker is a worker process that is kept running.
type Worker struct {
	Command []string // program and arguments; --parent and this process's id are added
	Env     []string // in addition to this process's environment
	// Stdout and Stderr get what the process writes; nil stands for this process's own.
	Stdout, Stderr io.Writer
	Log            *slog.Logger
	// FinalCodes are further exit codes after which it is not restarted.
	FinalCodes []int
	// MaxFailing is how long processes may end early. After it, any exit code is
	// final. 0 is forever.
	MaxFailing time.Duration
	// OnStart is an optional hook, called in a goroutine after each start. Its
	// context ends with the process.
	OnStart func(ctx context.Context, p *os.Process)
}

// Run starts the process, and restarts it whenever it ends, until its exit code is
// final. It returns that code, or -1 for a process that was killed. When stop is
// closed it drains the process, and when ctx ends it kills it; then it returns 0.
func (w Worker) Run(ctx context.Context, stop <-chan struct{}) (code int) {
	lastStable := time.Now() // since then processes have ended early
	for wait := firstRestart; ; wait = min(2*wait, lastRestart) {
		started := time.Now()
		code, err := w.runProcess(ctx, stop)
		if closed(stop) || ctx.Err() != nil {
			return 0
		}
		if w.final(code) {
			return code
		}
		if time.Since(started) > stableAfter {
			wait, lastStable = firstRestart, time.Now()
		}
		if w.MaxFailing > 0 && time.Since(lastStable) > w.MaxFailing {
			return code
		}
		w.Log.WarnContext(ctx, "worker process ended and will be restarted",
			"after", time.Since(started), observe.KeyError, err)
		select {
		case <-time.After(wait):
		case <-stop:
			return 0
		case <-ctx.Done():
			return 0
		}
	}
}

// runProcess runs one process to its end. When stop is closed it asks the process to
// drain. code is that of its end, whatever became of its output, or -1 if it was killed or
// not started.
func (w Worker) runProcess(ctx context.Context, stop <-chan struct{}) (code int, err error) {
	args := append(w.Command[1:len(w.Command):len(w.Command)], "--parent", strconv.Itoa(os.Getpid()))
	c := exec.CommandContext(ctx, w.Command[0], args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if w.Stdout != nil {
		c.Stdout = w.Stdout
	}
	if w.Stderr != nil {
		c.Stderr = w.Stderr
	}
	c.WaitDelay = outputDelay
	c.Env = append(os.Environ(), w.Env...)
	if err := c.Start(); err != nil {
		return -1, fault.WithKind(fault.Internal, err, "start a worker process")
	}
	hookCtx, endHook := context.WithCancel(ctx)
	defer endHook()
	if w.OnStart != nil {
		go w.OnStart(hookCtx, c.Process)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case err = <-done:
	case <-stop:
		// An error means that the process has ended already.
		_ = c.Process.Signal(syscall.SIGTERM)
		err = <-done
	}
	return c.ProcessState.ExitCode(), err
}

func (w Worker) final(code int) bool {
	return code == ExitUsage || code == ExitDamaged || slices.Contains(w.FinalCodes, code)
}

func closed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
