package sim

import (
	"context"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/host"
)

// thief is the name of the process that releases shards of others.
const thief = "thief"

// drawThefts draws whether shards are taken from holders whose leases are valid, in a
// sixth of all worlds: any process may release a shard on the bytes that it has read. So
// the attempt alone fences a holder. In worlds with poison no holder may lose a shard
// for another reason.
func (w *world) drawThefts() bool { return w.poison == noPoison && w.rand.intN("thefts", 6) == 0 }

// steal releases shards of the run that others hold, at drawn times.
func (s *scenario) steal(ctx context.Context, id identity.RunID) {
	if !s.thefts || s.action == exhaustsBudget { // what both holders spend exceeds a budget
		return
	}
	ports := s.ports(s.start(ctx, thief, 0))
	for s.faultsOn() && ctx.Err() == nil {
		pause(ctx, s.rand.duration("steal", 0, 5*time.Second))
		st, found := s.state(context.WithoutCancel(ctx), id)
		if !found || st.Shards == 0 {
			continue
		}
		key := identity.ShardKey(id, s.rand.intN("stolen", st.Shards))
		var d shard.Doc
		rev, found, err := host.Load(ctx, ports.Docs, key, &d)
		if err != nil || !found || d.State != shard.Running {
			continue
		}
		released, err := d.Release()
		if err == nil {
			_, err = host.Save(ctx, ports.Docs, key, released, rev)
		}
		s.tracef("thief: release shard %d of %s: %v", d.Shard, d.Worker, err)
	}
}
