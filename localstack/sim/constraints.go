package sim

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// constrained is the name of the kind of run whose shards constrain each other. It is
// a batch otherwise.
const constrained = "constrained"

// constraints are those of a run, and how its shards are divided into chains and
// variants.
type constraints struct {
	schedule.Constraints
	row, chains, variants uint64 // items in a row that share a chain, chains of a variant
	prunes                bool
}

// drawConstraints draws the constraints of a run; none in three of four runs.
func (w *world) drawConstraints() (c constraints) {
	if w.rand.intN("constrained", 4) > 0 {
		return c
	}
	c.row, c.chains, c.variants = uint64(1+w.rand.intN("row", 30)), uint64(1+w.rand.intN("chains", 5)),
		uint64(1+w.rand.intN("variants", 4))
	c.MaxInFlight, c.MaxInFlightByVariant = w.rand.intN("run cap", 6), w.rand.intN("variant cap", 4)
	c.Chains = w.rand.intN("leases", 3) > 0
	c.prunes = w.rand.intN("prunes", 3) == 0
	return c
}

// addTo adds the kind of run that has the constraints and whose plan does not grow.
func (c constraints) addTo(t kind.Table) kind.Table {
	k, err := t.Of(config.KindBatch)
	if err != nil {
		panic(err)
	}
	k.Name, k.Constraints = constrained, func(config.Run) schedule.Constraints { return c.Constraints }
	return t.With(k)
}

// label gives the shards of a new shard table their chains and variants, as the
// planning of a kind would.
func (c constraints) label(key string, table []byte) []byte {
	if c.row == 0 || !strings.HasPrefix(key, record.WorkPrefix) || !strings.HasSuffix(key, ".cuts") {
		return table
	}
	rows, err := shardtable.Parse(table[shardtable.HeaderSize:])
	if err != nil {
		panic(err)
	}
	out := append([]byte(nil), table[:shardtable.HeaderSize]...)
	for _, r := range rows {
		k := r.FirstItem / c.row
		r.Chain, r.Variant = uint32(k%c.chains), uint32(k/c.chains%c.variants)
		out = r.Append(out)
	}
	return out
}

// prune prunes a variant at some time of the run, from a process of its own.
func (s *scenario) prune(ctx context.Context, id identity.RunID) {
	if !s.constraints.prunes || s.cfg.Dedupe.Enabled {
		return
	}
	pause(ctx, s.rand.duration("before prune", 0, 10*time.Second))
	ports := s.ports(s.start(ctx, "pruner", 0))
	c := coordinate.New(ports, input.NewIndex(ports.Blobs, ports.Docs), coordinate.Options{Timings: s.timings,
		Shared: s.segmented, Kinds: s.kinds()})
	pruned := run.Event{Kind: run.VariantPruned, Why: "it is worse",
		Variant: uint32(s.rand.intN("pruned", int(s.constraints.variants)))}
	for ctx.Err() == nil {
		if _, err := c.Apply(ctx, id, []run.Event{pruned}); err == nil {
			return
		}
		pause(ctx, s.rand.duration("prune again", 0, time.Second))
	}
}

// plannedShard is a shard with the items that it has by the plan.
type plannedShard struct {
	number int
	items  interval.Range
	schedule.Attributes
}

// plannedShards reads the shards of the run's plan.
func (s *scenario) plannedShards(ctx context.Context, st run.State) (out []plannedShard) {
	for k := 0; len(out) < st.Shards; k++ {
		var e record.IndexEntry
		if err := json.Unmarshal(s.object(ctx, record.IndexKey(s.planOf, k)), &e); err != nil {
			s.t.Fatal(err)
		}
		rows, err := shardtable.Parse(s.object(ctx, record.ShardTableKey(s.planOf, k))[shardtable.HeaderSize:])
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range rows {
			first := int(e.FirstItem + r.FirstItem)
			out = append(out, plannedShard{len(out), interval.Range{Lo: first, Hi: first + int(r.Items)},
				schedule.Attributes{Chain: r.Chain, Variant: r.Variant}})
		}
	}
	return out
}

// checkConstraints checks that a shard of a chain was claimed only when all earlier
// ones of its chain were done, and returns the items that no shard was sent for
// because their variant was pruned.
func (s *scenario) checkConstraints(ctx context.Context, st run.State) (pruned interval.Set) {
	if s.constraints.row == 0 {
		return pruned
	}
	shards := s.plannedShards(ctx, st)
	for _, p := range shards {
		if _, claimed := s.audit.shards[identity.ShardKey(s.id, p.number)]; !claimed && st.Pruned.Has(p.Variant, p.number) {
			pruned.AddRange(p.items)
			s.prunedShards.Add(p.number)
		}
	}
	if !s.constraints.Chains {
		return pruned
	}
	done := map[int]bool{}
	for _, h := range s.audit.history {
		if h.Run != s.id { // a neighbour's
			continue
		}
		if h.State == shard.Done {
			done[h.Shard] = true
			continue
		}
		for _, p := range shards[:h.Shard] {
			if a := shards[h.Shard]; a.Chain != 0 && p.Chain == a.Chain && p.Variant == a.Variant && !done[p.number] {
				s.audit.breakf("shard %d was claimed before shard %d of its chain was done", h.Shard, p.number)
			}
		}
	}
	return pruned
}
