package coordinate

import (
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/share"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// rateKnown is how long a run must have had shards in flight until the rates of its
// workers say how much work 10 s are.
const rateKnown = 10 * time.Second

// observeShares reads which runs share the pools that the run needs now, and enters this
// one, so that a crash after a save leaves no wrong entry for long. It returns what of the
// division the run's next step depends on, but for the heartbeats.
func (c *Coordinator) observeShares(ctx context.Context, l *loaded, needed []string) (schedule.Sharing, error) {
	s := schedule.Sharing{Fraction: 1}
	part, now := l.manifest.Part(), c.Clock.Now()
	docs, err := c.enter(ctx, l, needed)
	if err != nil {
		return s, err
	}
	for _, d := range docs {
		s.Shared = s.Shared || d.Others(l.state.Run)
		s.Fraction = min(s.Fraction, d.Fraction(part, now))
	}
	return s, nil
}

// enter has the documents of the run's pools say how it takes part: it is listed in those
// that it needs while it is running, and in no other one. Before its first step is saved it
// is not entered, so that a small run, which sends all in that step, is entered once. enter
// returns the documents of the pools that the run needs.
func (c *Coordinator) enter(ctx context.Context, l *loaded, needed []string) (docs []share.Doc, err error) {
	if l.kind.Trains { // a worker that waits for one training must not claim another
		return nil, nil
	}
	part := l.manifest.Part()
	part.Sent, part.SentAlone = l.state.AllSent(), l.state.SentAlone
	for _, pool := range l.manifest.Pools() {
		needs := slices.Contains(needed, pool)
		listed := needs && l.state.Phase == run.Running
		d, err := host.Update(ctx, c.Docs, record.ShareKey(pool), func(d share.Doc, _ bool) (share.Doc, bool, error) {
			next, changed := d.Without(part.Run)
			if listed {
				next, changed = d.With(part)
			}
			if l.rev == "" || !changed {
				return d, false, nil
			}
			if listed { // a stale memory must not list a run that has ended since
				if current, err := c.current(ctx, l); err != nil || !current {
					return d, false, err
				}
			}
			return next, true, nil
		})
		if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) { // shares are hints: the run goes on without
			c.warn(ctx, "the shares of the pool can't be read", observe.KeyRun, part.Run, observe.KeyPool, pool,
				observe.KeyError, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if needs {
			docs = append(docs, d)
		}
	}
	return docs, nil
}

// entryChanged reports whether the entry of a run may differ between two states. What it
// misses, the next step enters.
func entryChanged(a, b run.State) bool {
	return a.Phase != b.Phase || a.Complete != b.Complete || a.AllSent() != b.AllSent() || a.SentAlone != b.SentAlone
}

// addHolder counts a living worker of a pool that the run needs.
func addHolder(s *schedule.Sharing, id identity.RunID, b health.Heartbeat) {
	s.Workers++
	s.Rate += b.Load.Rate
	var held []int
	for _, h := range b.Holds {
		if h.Run == id {
			held = append(held, h.Shard)
		}
	}
	s.Held = append(s.Held, held)
}
