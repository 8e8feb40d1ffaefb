package coordinate

import (
	"context"
	"slices"

	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// withRoles returns the events with the roles of the shards that they report done.
// A run of one role needs no look at its plan.
func (c *Coordinator) withRoles(ctx context.Context, m record.Manifest, evs []run.Event) ([]run.Event, error) {
	if len(m.Roles) == 0 {
		return evs, nil
	}
	evs = slices.Clone(evs)
	for i, e := range evs {
		if e.Kind != run.ShardDone || e.Shard < 0 {
			continue
		}
		role, err := c.index.RoleOf(ctx, m, e.Shard)
		if err != nil && !fault.Is(err, fault.NotFound) { // Step rejects a shard that is not planned
			return nil, err
		}
		evs[i].Role = int(role)
	}
	return evs, nil
}

// unserved returns the first of the run's pools that has no work queues; "" if all
// have.
func (c *Coordinator) unserved(m record.Manifest) string {
	for _, pool := range m.Pools() {
		if !c.serves(pool) {
			return pool
		}
	}
	return ""
}
