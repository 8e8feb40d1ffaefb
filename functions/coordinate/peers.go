package coordinate

import (
	"context"
	"time"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// AmongMany makes c one of many coordinators that the same runs' events are
// dealt to, as in clouds: the effects of a state that another one saved a
// moment ago are left to that one. It costs a write a step, and spares the
// messages of each step's effects being sent by everybody who loads it.
func (c *Coordinator) AmongMany() *Coordinator {
	c.shared = true
	return c
}

// peerTimeout is how long whoever saved a state may take to perform its effects
// before others do; lookAgain is how often they look whether he has.
const (
	peerTimeout = 3 * time.Second
	peerPoll    = 200 * time.Millisecond
)

// waitForPeer waits while whoever saved the state may still be performing its
// effects. moved says that the state is another one now.
func (c *Coordinator) waitForPeer(ctx context.Context, l *loaded) (moved bool, err error) {
	if !c.shared {
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

// clearEffects takes the effects, which were performed, out of the state. If
// they stay in it, they are only performed again.
func (c *Coordinator) clearEffects(ctx context.Context, l *loaded) {
	if !c.shared || len(l.state.Effects) == 0 || l.state.Phase.Ended() {
		return
	}
	l.state.Effects = nil
	rev, err := host.Save(ctx, c.Docs, record.CoordinatorKey(l.state.Run), l.state, l.rev)
	if err != nil {
		c.forget(l.state.Run)
		if !fault.Is(err, fault.Conflict) { // else somebody has gone on from there
			c.warn(ctx, "effects were performed, and are not known to be", "run", l.state.Run, "error", err)
		}
		return
	}
	l.rev, l.performed = rev, true
	c.remember(l.state.Run, l)
}
