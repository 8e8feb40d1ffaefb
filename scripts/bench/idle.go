package main

import (
	"context"
	"fmt"
	"time"

	"rollout/shared/core/health"
)

// Times of the measure of idle processes.
const (
	idleSettle = 5 * time.Second // what starting costs is over then
	idleFor    = time.Minute
)

// idle measures what `up` and its worker cost while nothing happens.
func idle(ctx context.Context, l *runner) error {
	in, err := l.newRunFolder(1, 300)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", "mock", "--workers", "1")
	if err != nil {
		return err
	}
	defer up.kill()
	worker, err := up.worker(ctx, func(b health.Heartbeat) bool { return b.State == health.Ready })
	if err != nil {
		return err
	}
	processes := map[string]int{"Idle/up": up.cmd.Process.Pid, "Idle/worker": worker.PID}
	if err := pauseFor(ctx, idleSettle); err != nil {
		return err
	}
	before := map[string]time.Duration{}
	for name, pid := range processes {
		if before[name], err = cpuOf(pid); err != nil {
			return err
		}
	}
	if err := pauseFor(ctx, idleFor); err != nil {
		return err
	}
	for name, pid := range processes {
		after, err := cpuOf(pid)
		if err != nil {
			return err
		}
		l.report.add(name, "%-of-a-core", 100*float64(after-before[name])/float64(idleFor))
	}
	if err := up.stop(); err != nil {
		return err
	}
	return in.remove()
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("the pause was interrupted: %w", ctx.Err())
	case <-time.After(d):
		return nil
	}
}
