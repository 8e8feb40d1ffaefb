package gcp

import (
	"context"
	"time"

	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// groupsState is the document fleet/<pool>/groups: who may change the sizes of a pool's
// groups now, and what their past tells. Only functions write it.
type groupsState struct {
	Schema      int                       `json:"schema"`
	LockedUntil time.Time                 `json:"locked_until,omitzero"`
	Outstanding bool                      `json:"outstanding"` // machines were asked for that do not exist
	Memory      map[string]scaling.Memory `json:"memory,omitempty"`
	// Told is what fleet/<pool> says of the pool's machines.
	Told groupsSize `json:"told,omitzero"`
}

// groupsSize counts the machines of a pool: those that its groups shall have, and those that exist.
type groupsSize struct {
	Desired int `json:"desired"`
	Present int `json:"present"`
}

const (
	// lockDuration is how long a lock is held at most: a function that ended must not
	// hold it for long, and one that is slow must not lose it.
	lockDuration = 2 * time.Minute
	// lockMargin is the part of it in which nothing begins any more that must not happen
	// without the lock: more than a request takes.
	lockMargin = 2 * computeTimeout
)

// groupsLock is the lock of a pool's groups while it is held.
type groupsLock struct {
	state groupsState
	until time.Time
	// uncertain says that a request to resize has no answer: it may still be carried out,
	// and would lower what another call raises meanwhile. The lock then expires by itself.
	uncertain bool
}

// check fails with Unavailable if the lock may soon be another's.
func (l *groupsLock) check(now time.Time) error {
	if !now.Add(lockMargin).Before(l.until) {
		return fault.New(fault.Unavailable, "the pool's groups took too long to answer: others may change them by now")
	}
	return nil
}

// groupsKey returns the key of the state of a pool's groups.
func groupsKey(pool string) string { return record.FleetKey(pool) + "/groups" }

// locked calls do while this call holds the lock, and keeps what it changed of the state.
// If another call holds the lock, it returns nil: that one does the work, and callers
// repeat their call while work waits.
func (g *groups) locked(ctx context.Context, do func(ctx context.Context, l *groupsLock) error) error {
	key := groupsKey(g.pool)
	var state groupsState
	rev, _, err := host.Load(ctx, g.docs, key, &state)
	now := g.clock.Now()
	if err != nil || state.LockedUntil.After(now) {
		return err
	}
	// Outstanding before anything is asked for, so that a crash does not lose it.
	state.Schema, state.LockedUntil, state.Outstanding = record.Schema, now.Add(lockDuration).UTC(), true
	rev, err = host.Save(ctx, g.docs, key, state, rev)
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	if err != nil {
		return err
	}
	l := &groupsLock{state: state, until: state.LockedUntil}
	inTime, cancel := context.WithTimeout(ctx, l.until.Sub(g.clock.Now())-lockMargin)
	defer cancel()
	err = do(inTime, l)
	g.unlock(ctx, l, rev)
	return err
}

// unlock saves the state without the lock, also if ctx has ended. If that fails, or a
// resize is uncertain, the lock expires.
func (g *groups) unlock(ctx context.Context, l *groupsLock, rev document.Revision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if !l.uncertain {
		l.state.LockedUntil = time.Time{}
	}
	_, err := host.Save(ctx, g.docs, groupsKey(g.pool), l.state, rev)
	if err != nil {
		g.log.WarnContext(ctx, "the lock of the groups is not released: it expires by itself",
			observe.KeyPool, g.pool, observe.KeyError, err)
	}
}
