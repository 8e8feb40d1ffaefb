package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"rollout/shared/engine/health"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/engine/shard"
	"rollout/shared/host"
)

// takeover kills one of two workers in the middle of a run and measures how
// long after the failure timeout the first of its shards is claimed anew.
func takeover(ctx context.Context, l *lab) error {
	server, err := l.fakellm(ctx, "-latency", overheadLatency.String())
	if err != nil {
		return err
	}
	defer server.end()
	in, err := l.installation(l.n, 300)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", server.url+"/v1", "--workers", "2")
	if err != nil {
		return err
	}
	defer up.kill()
	if err := in.show(); err != nil {
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
	over := dead.DueAt.Add(up.view.Deployment.Health.FailureTimeout.Std())
	l.report.add("Takeover", "s-after-timeout", claimed.Sub(over).Seconds())
	if err := up.stop(); err != nil { // the rest of the run is of no interest
		return err
	}
	return in.remove()
}

// killWorker kills a worker process that holds shards, and returns its last
// heartbeat.
func (u *up) killWorker(ctx context.Context) (health.Beat, error) {
	victim, err := u.worker(ctx, func(b health.Beat) bool { return len(b.Holds) > 0 })
	if err != nil {
		return victim, err
	}
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		return victim, err
	}
	time.Sleep(time.Second / 2) // its last write is over
	return u.worker(ctx, func(b health.Beat) bool { return b.Worker == victim.Worker })
}

func (u *up) worker(ctx context.Context, good func(health.Beat) bool) (found health.Beat, err error) {
	err = wait(ctx, func() (bool, error) {
		err := host.Each(ctx, u.view.Ports.Docs, "beat/", func(b health.Beat) error {
			if good(b) {
				found = b
			}
			return nil
		})
		return found.Worker != "", err
	})
	return found, err
}

// reclaimed waits until one of the shards that the dead worker holds is
// somebody else's, and says since when.
func (u *up) reclaimed(ctx context.Context, dead health.Beat) (at time.Time, err error) {
	held, err := u.held(ctx, dead.Worker)
	if err == nil && len(held) == 0 {
		err = errors.New("the killed worker held nothing")
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

// held are the shards that are a worker's by their documents: its heartbeat
// lists those of half a second ago.
func (u *up) held(ctx context.Context, worker string) (held []health.Held, err error) {
	err = host.Each(ctx, u.view.Ports.Docs, "coordinator/", func(st run.State) error {
		for _, c := range st.InFlight.Chunks {
			for n := c.Lo; n < c.Hi; n++ {
				d, err := u.shard(ctx, health.Held{Run: st.Run, Shard: n})
				if err != nil {
					return err
				}
				if d.State == shard.Running && d.Worker == worker {
					held = append(held, health.Held{Run: st.Run, Shard: n, Attempt: d.Attempt})
				}
			}
		}
		return nil
	})
	return held, err
}

// shard reads a shard's document.
func (u *up) shard(ctx context.Context, h health.Held) (shard.Doc, error) {
	d := shard.New(h.Run, h.Shard)
	_, _, err := host.Load(ctx, u.view.Ports.Docs, identity.ShardKey(h.Run, h.Shard), &d)
	return d, err
}
