package main

import (
	"context"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/host"
)

// heartbeats measures how late heartbeats are while five processes, `up` and its
// four workers, work as fast as they can.
func heartbeats(ctx context.Context, l *runner) error {
	in, err := l.newRunFolder(l.n, 300)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", "mock", "--workers", "4")
	if err != nil {
		return err
	}
	defer up.kill()
	if err := in.reveal(); err != nil {
		return err
	}
	watch, stop := context.WithCancel(ctx)
	worst := make(chan time.Duration, 1)
	go func() { worst <- up.watchBeats(watch) }()
	start := time.Now()
	err = up.until(ctx, func(s runStatus) bool { return s.Phase.Ended() })
	stop()
	late := <-worst
	if err != nil {
		return err
	}
	l.report.add("Processes=5", "samples/s", float64(in.lines)/time.Since(start).Seconds())
	l.report.add("Processes=5", "latest-heartbeat-ms", float64(late)/float64(time.Millisecond))
	if err := up.stop(); err != nil {
		return err
	}
	return in.remove()
}

// watchBeats returns the longest delay of a heartbeat beyond an interval after the
// previous one, until ctx ends.
func (u *upProcess) watchBeats(ctx context.Context) (worst time.Duration) {
	interval := u.view.Deployment.Health.Interval.Std()
	last := map[string]time.Time{}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return worst
		case <-tick.C:
		}
		// A failed read only misses one observation.
		_ = host.Each(ctx, u.view.Ports.Docs, "beat/", func(b health.Heartbeat) error {
			before, known := last[b.Worker]
			if known && b.At.After(before) && b.State == health.Ready {
				worst = max(worst, time.Since(before)-interval)
			}
			last[b.Worker] = b.At
			return nil
		})
	}
}
