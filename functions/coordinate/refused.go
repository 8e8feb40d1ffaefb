package coordinate

import (
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// withAnswers returns the events with what heartbeats tell of refusals: when a request for
// an item of the same role was answered last, to a worker that does not hold the shard of
// the one that reports the refusal. Other events need no look at the heartbeats.
func (c *Coordinator) withAnswers(ctx context.Context, m record.Manifest, evs []run.Event) ([]run.Event, error) {
	isRefusal := func(e run.Event) bool { return e.Kind == run.RequestsRefused }
	if !slices.ContainsFunc(evs, isRefusal) {
		return evs, nil
	}
	evs = slices.Clone(evs)
	roles := map[int]uint32{} // of the shards whose holders report a refusal
	for _, e := range evs {
		if !isRefusal(e) {
			continue
		}
		role, err := c.index.RoleOf(ctx, m, e.Shard)
		if fault.Is(err, fault.NotFound) { // the shard is not planned
			continue
		}
		if err != nil {
			return nil, err
		}
		roles[e.Shard] = role
	}
	all, unread := c.beats.read(ctx, c.Clock.Now(), false)
	for _, b := range all {
		for i, e := range evs {
			if !isRefusal(e) || slices.ContainsFunc(b.Holds, func(h health.HeldShard) bool {
				return h.Run == m.Run && h.Shard == e.Shard
			}) {
				continue
			}
			role, planned := roles[e.Shard]
			if !planned {
				continue
			}
			at, err := c.answeredAt(ctx, m, b, role)
			if err != nil {
				return nil, err
			}
			if at.After(e.AnsweredAt) {
				evs[i].AnsweredAt = at
			}
		}
	}
	return evs, c.tolerate(ctx, unread)
}

// answeredAt returns when the worker of the heartbeat had a request for an item of the role
// answered last; zero if it had none for the shards that it holds.
func (c *Coordinator) answeredAt(ctx context.Context, m record.Manifest, b health.Heartbeat, role uint32) (
	last time.Time, err error) {
	for _, h := range b.Holds {
		if h.Run != m.Run || !h.AnsweredAt.After(last) {
			continue
		}
		of, err := c.index.RoleOf(ctx, m, h.Shard)
		if err != nil {
			return last, err
		}
		if of == role {
			last = h.AnsweredAt
		}
	}
	return last, nil
}
