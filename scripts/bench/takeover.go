package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
)

// takeover kills one of two workers during a run and measures how long after the
// failure timeout the first of its shards is claimed again.
func takeover(ctx context.Context, l *runner) error {
	server, err := l.fakellm(ctx, "-latency", overheadLatency.String())
	if err != nil {
		return err
	}
	defer server.end()
	in, err := l.newRunFolder(l.n, 300)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", server.url+"/v1", "--workers", "2")
	if err != nil {
		return err
	}
	defer up.kill()
	if err := in.reveal(); err != nil {
		return err
	}
	if err := up.until(ctx, func(s runStatus) bool { return s.Items.Planned && s.Shards.Done > 2 }); err != nil {
		return err
	}
	dead, err := up.killWorker(ctx)
	if err != nil {
		return err
	}
	claimed, err := up.reclaimed(ctx, dead)
	if err != nil {
		return err
	}
	failedAt := dead.DueAt.Add(up.view.Deployment.Health.FailureTimeout.Std())
	l.report.add("Takeover", "s-after-timeout", claimed.Sub(failedAt).Seconds())
	if err := up.stop(); err != nil { // the rest of the run is not measured
		return err
	}
	return in.remove()
}

// killWorker kills a worker process that holds shards and returns its last
// heartbeat.
func (u *upProcess) killWorker(ctx context.Context) (health.Heartbeat, error) {
	victim, err := u.worker(ctx, func(b health.Heartbeat) bool { return len(b.Holds) > 0 })
	if err != nil {
		return victim, err
	}
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		return victim, err
	}
	time.Sleep(time.Second / 2) // until its last write has been performed
	return u.worker(ctx, func(b health.Heartbeat) bool { return b.Worker == victim.Worker })
}

// worker waits for a heartbeat that is good.
func (u *upProcess) worker(ctx context.Context, good func(health.Heartbeat) bool) (found health.Heartbeat, err error) {
	err = wait(ctx, func() (bool, error) {
		err := host.Each(ctx, u.view.Ports.Docs, "beat/", func(b health.Heartbeat) error {
			if good(b) {
				found = b
			}
			return nil
		})
		return found.Worker != "", err
	})
	return found, err
}

// reclaimed waits until another worker claims a shard of the dead worker, and
// returns the time.
func (u *upProcess) reclaimed(ctx context.Context, dead health.Heartbeat) (at time.Time, err error) {
	held, err := u.held(ctx, dead.Worker)
	if err == nil && len(held) == 0 {
		err = errors.New("the killed worker held no shard")
	}
	if err != nil {
		return at, err
	}
	err = wait(ctx, func() (bool, error) {
		for _, h := range held {
			d, err := u.shard(ctx, h)
			if err != nil {
				return false, err
			}
			if d.Attempt > h.Attempt && d.State != shard.Pending {
				at = time.Now()
				return true, nil
			}
		}
		return false, nil
	})
	return at, err
}

// held returns the shards that a worker holds by their documents. Its heartbeat may
// be half a second old.
func (u *upProcess) held(ctx context.Context, worker string) (held []health.HeldShard, err error) {
	err = host.Each(ctx, u.view.Ports.Docs, "coordinator/", func(st run.State) error {
		for _, c := range st.InFlight.Chunks {
			for n := c.Lo; n < c.Hi; n++ {
				d, err := u.shard(ctx, health.HeldShard{Run: st.Run, Shard: n})
				if err != nil {
					return err
				}
				if d.State == shard.Running && d.Worker == worker {
					held = append(held, health.HeldShard{Run: st.Run, Shard: n, Attempt: d.Attempt})
				}
			}
		}
		return nil
	})
	return held, err
}

// shard reads a shard's document.
func (u *upProcess) shard(ctx context.Context, h health.HeldShard) (shard.Doc, error) {
	d := shard.New(h.Run, h.Shard)
	_, _, err := host.Load(ctx, u.view.Ports.Docs, identity.ShardKey(h.Run, h.Shard), &d)
	return d, err
}
