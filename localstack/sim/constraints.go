package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/pruning"
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
	looks                 int // at which the run prunes; 0 for a run that prunes at any time
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
	if w.rand.intN("is looked at", 2) == 0 && w.rounds == 0 {
		c.looks = 1 + w.rand.intN("looks", 4)
	}
	return c
}

// addTo adds the kind of run that has the constraints and whose plan does not grow.
func (c constraints) addTo(t kind.Table) kind.Table {
	k, err := t.Of(config.KindBatch)
	if err != nil {
		panic(err)
	}
	k.Name, k.Constraints = constrained, func(config.Run) schedule.Constraints { return c.Constraints }
	if c.looks > 0 {
		c.addLooks(&k)
	}
	return t.With(k)
}

// addLooks has the runs of the kind looked at. Every other look prunes the variant whose number is
// the remainder of its own.
func (c constraints) addLooks(k *kind.Kind) {
	k.ConfigOf = func(cfg config.Run) config.Run {
		rule := config.DefaultPruning()
		rule.Rule = config.PruneRace
		cfg.Pruning = &rule
		for v := range c.variants {
			cfg.Variants = append(cfg.Variants, config.Variant{Name: fmt.Sprint(v)})
		}
		return cfg
	}
	k.Looks = &kind.Looks{
		Places: func(_ config.Run, shards int) []int {
			return pruning.Places(design.Design{Tasks: shards, Variants: 1, Replications: 1}, c.looks)
		},
		Decide: func(_ context.Context, l kind.Look) (record.Look, error) {
			last, first := -1, 0
			if l.Number > 1 {
				first = l.Places[l.Number-2]
			}
			for it, err := range l.Items {
				if err != nil {
					return record.Look{}, err
				}
				if n := int(it.Index); n <= last || n < first || n >= l.Places[l.Number-1] {
					panic(fmt.Sprintf("look %d in %v meets shard %d", l.Number, l.Places, n))
				}
				last = int(it.Index)
			}
			out := record.Look{Schema: record.Schema, Look: l.Number, From: l.Places[l.Number]}
			v := record.LookVariant{Name: fmt.Sprint(uint64(l.Number) % c.variants), Why: "it is worse", Pruned: l.Number%2 == 1}
			out.Variants = append(out.Variants, v)
			return out, nil
		},
	}
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
	if !s.constraints.prunes || s.constraints.looks > 0 || s.cfg.Dedupe.Enabled {
		return
	}
	pause(ctx, s.rand.duration("before prune", 0, 10*time.Second))
	ports := s.ports(s.start(ctx, "pruner", 0))
	c := coordinate.New(ports, input.NewIndex(ports.Blobs, ports.Docs), coordinate.Options{Timings: s.timings,
		Shared: s.segmented, Kinds: s.kinds()})
	pruned := run.Event{Kind: run.VariantPruned, Why: "it is worse",
		Variant: uint32(s.rand.intN("pruned", int(s.constraints.variants))), Shard: s.rand.intN("pruned from", 9)}
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
		_, claimed := s.audit.shards[identity.ShardKey(s.id, p.number)]
		prunes := st.Pruned.Has(p.Variant, p.number)
		if !claimed && prunes {
			pruned.AddRange(p.items)
			s.prunedShards.Add(p.number)
		}
		if s.constraints.looks > 0 && st.Reason == run.ReasonDone && claimed == prunes {
			s.audit.breakf("shard %d of variant %d was claimed: %v, and looks have pruned %v", p.number, p.Variant, claimed,
				st.Pruned)
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
