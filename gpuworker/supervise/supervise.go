// Package supervise keeps worker processes alive: one that dies is started
// again, later and later while they die young, and all are drained by who asks
// their supervisor to stop.
//
// It knows no work and no store; why a worker ended well is its exit code, and
// what that means is the caller's affair.
package supervise

import (
	"context"
	"errors"
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

// Waits before a dead worker is started again: doubling while they die young.
// The longest one is short: it is how much later the work goes on once what
// they died of is mended.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 3 * time.Second
	grownUp      = 10 * time.Second
)

// Exit codes that are the same for every worker process.
const (
	ExitUsage   = 2 // its arguments or config are wrong
	ExitDamaged = 3 // it found the state damaged
)

// Worker is a worker process that is kept alive.
type Worker struct {
	Command []string // to which this process's id is added as --parent
	Env     []string // beside this process's own
	Log     *slog.Logger
	// FinalCodes are exit codes after which it is not started again, beside those
	// above.
	FinalCodes []int
	// MaxFailing is how long it may go on dying young; 0 is for ever. Then its
	// code, whatever it is, is final.
	MaxFailing time.Duration
	// OnStart looks after a process as long as it lives; nil does not.
	OnStart func(ctx context.Context, p *os.Process)
}

// Run starts the worker, and again whenever it ends, until its exit code is
// final, which it returns: -1 of one that was killed. When stop closes it lets the worker drain, when ctx
// ends it kills it; then it returns 0.
func (w Worker) Run(ctx context.Context, stop <-chan struct{}) (code int) {
	grown := time.Now() // since when it only died young
	for wait := firstRestart; ; wait = min(2*wait, lastRestart) {
		born := time.Now()
		err := w.live(ctx, stop)
		if closed(stop) || ctx.Err() != nil {
			return 0
		}
		code := exitCode(err)
		if w.final(code) {
			return code
		}
		if time.Since(born) > grownUp {
			wait, grown = firstRestart, time.Now()
		}
		if w.MaxFailing > 0 && time.Since(grown) > w.MaxFailing {
			return code
		}
		w.Log.WarnContext(ctx, "worker process ended and is started again", "after", time.Since(born), observe.KeyError, err)
		select {
		case <-time.After(wait):
		case <-stop:
			return 0
		case <-ctx.Done():
			return 0
		}
	}
}

// live runs one process to its end, which it is asked for when stop closes.
func (w Worker) live(ctx context.Context, stop <-chan struct{}) error {
	args := append(w.Command[1:len(w.Command):len(w.Command)], "--parent", strconv.Itoa(os.Getpid()))
	c := exec.CommandContext(ctx, w.Command[0], args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Env = append(os.Environ(), w.Env...)
	if err := c.Start(); err != nil {
		return fault.WithKind(fault.Internal, err, "start a worker process")
	}
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	if w.OnStart != nil {
		go w.OnStart(watch, c.Process)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case err := <-done:
		return err
	case <-stop:
	}
	// A process that is gone already needs no signal.
	_ = c.Process.Signal(syscall.SIGTERM)
	return <-done
}

func (w Worker) final(code int) bool {
	return code == ExitUsage || code == ExitDamaged || slices.Contains(w.FinalCodes, code)
}

// exitCode is that of a process whose end Wait told so; -1 if it was killed, or
// never started.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func closed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
