package coordinate

import (
	"context"
	"time"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// With Options.Shared, a coordinator that loads a state with effects gives the
// process that saved it up to peerTimeout to perform them. It checks every
// peerPoll whether that has happened.
const (
	peerTimeout = 3 * time.Second
	peerPoll    = 200 * time.Millisecond
)

// waitForPeer waits while the process that saved the state may still be
// performing its effects. moved reports that another state was saved meanwhile.
func (c *Coordinator) waitForPeer(ctx context.Context, l *loaded) (moved bool, err error) {
	if !c.opts.Shared {
		return false, nil
	}
	for range peerTimeout / peerPoll {
		if c.Clock.Now().Sub(l.state.SavedAt) >= peerTimeout {
			return false, nil
		}
		again := time.NewTimer(peerPoll)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return false, ctx.Err()
		}
		if current, err := c.current(ctx, l); err != nil || !current {
			return true, err
		}
	}
	return false, nil
}

// clearEffects removes the performed effects from the saved state, so that
// peers do not wait for them. A failure is logged only: the effects are then
// performed again.
func (c *Coordinator) clearEffects(ctx context.Context, l *loaded) {
	if !c.opts.Shared || len(l.state.Effects) == 0 || l.state.Phase.Ended() {
		return
	}
	l.state.Effects = nil
	rev, err := host.Save(ctx, c.Docs, record.CoordinatorKey(l.state.Run), l.state, l.rev)
	if err != nil {
		c.forget(l.state.Run)
		if !fault.Is(err, fault.Conflict) { // on a conflict a peer has replaced them
			c.warn(ctx, "clear performed effects", observe.KeyRun, l.state.Run, observe.KeyError, err)
		}
		return
	}
	c.pace.saved(l.state.Run)
	l.rev, l.performed = rev, true
	c.remember(l.state.Run, l)
}
