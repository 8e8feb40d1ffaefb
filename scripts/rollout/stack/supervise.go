package stack

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"rollout/shared/fault"
)

// Waits before a dead worker is started again: doubling while they die young.
// The longest one is short: it is how much later the work goes on once what
// they died of is mended.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 3 * time.Second
	grownUp      = 10 * time.Second
)

// exitUsage is the exit code of a process whose arguments or config are wrong:
// starting it again is useless.
const exitUsage = 2

// exitDamaged is that of a process that found the state damaged: nobody may go
// on with it.
const exitDamaged = 3

// supervise keeps one worker process of the pool alive until the stack stops.
func (s *Stack) supervise(ctx context.Context, pool string) error {
	log := s.o.Local.Ports.Log
	for wait := firstRestart; ; wait = min(2*wait, lastRestart) {
		born := time.Now()
		err := s.child(ctx, pool)
		if s.stops(ctx) {
			return nil
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitUsage {
			return fault.As(fault.Invalid, err, "worker of pool %s", pool)
		}
		if errors.As(err, &exit) && exit.ExitCode() == exitDamaged {
			s.halt()
			return fault.As(fault.Corrupt, err, "worker of pool %s found the state damaged; its own words are above", pool)
		}
		if time.Since(born) > grownUp {
			wait = firstRestart
		}
		log.WarnContext(ctx, "worker process ended and is started again", "pool", pool, "after", time.Since(born), "error", err)
		select {
		case <-time.After(wait):
		case <-s.stopping:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// child runs one worker process to its end. When the stack stops, it is asked
// to drain.
func (s *Stack) child(ctx context.Context, pool string) error {
	args := append(s.o.Worker[1:len(s.o.Worker):len(s.o.Worker)], "--pool", pool, "--parent", strconv.Itoa(os.Getpid()))
	c := exec.CommandContext(ctx, s.o.Worker[0], args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return fault.As(fault.Internal, err, "start a worker process")
	}
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go s.watchStalled(watch, c.Process)
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case err := <-done:
		return err
	case <-s.stopping:
	}
	// A process that is gone already needs no signal.
	_ = c.Process.Signal(syscall.SIGTERM)
	return <-done
}

func (s *Stack) stops(ctx context.Context) bool {
	select {
	case <-s.stopping:
		return true
	default:
		return ctx.Err() != nil
	}
}
