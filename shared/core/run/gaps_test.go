package run

import (
	"slices"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
)

// drawConstraints draws the constraints of a run; none in half of all runs.
func drawConstraints(t *rapid.T) (c schedule.Constraints) {
	if rapid.Bool().Draw(t, "constrained") {
		c.MaxInFlight = rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "max in flight")
		c.MaxInFlightByVariant = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "max of a variant")
		c.Chains = rapid.Bool().Draw(t, "chains")
		c.OfVariants = rapid.SampledFrom([][]int{nil, nil, {2}, {0, 1, 3}}).Draw(t, "limits of variants")
	}
	return c
}

// drawAttributes draws how the shards of a run are divided into variants and chains:
// one after the other, in turns, or at random.
func drawAttributes(t *rapid.T) func(n int) schedule.Attributes {
	length := rapid.SampledFrom([]int{1, 5, 100}).Draw(t, "shards in a row")
	chains := rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "chains of a variant")
	variants := rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "variants")
	shuffled := rapid.Bool().Draw(t, "shuffled")
	return func(n int) schedule.Attributes {
		k := n / length
		if shuffled {
			k = (n*7919 + n/13) % 1009
		}
		return schedule.Attributes{Chain: uint32(k % chains), Variant: uint32(k / chains % variants), Items: 1}
	}
}

// observed is what the run's documents say, with the attributes that a step needs.
func (w *twin) observed(s State, events []Event) Observed {
	return withRows(s, w.world, w.rules, events, w.attributes, w.rounds)
}

// withRows returns what is observed with the attributes that a step needs, as
// coordinate finds them in at most so many rounds. It knows the outline of some pages.
func withRows(s State, o Observed, r Rules, events []Event, of func(n int) schedule.Attributes, rounds int) Observed {
	for range rounds {
		for _, k := range ScanPages(s, o, r, events) {
			p := schedule.Page{First: k * schedule.PageShards}
			for n := p.First; n < min(p.First+schedule.PageShards, max(s.Shards, o.Shards)); n++ {
				p.Rows = append(p.Rows, of(n))
			}
			o.Rows = append(o.Rows, p)
		}
		slices.SortFunc(o.Rows, func(a, b schedule.Page) int { return a.First - b.First })
		o.Outline = o.Outline.With(o.Rows, 1)
	}
	return o
}

// chain identifies a chain of a variant.
type chain struct{ variant, chain uint32 }

func chainOf(a schedule.Attributes) chain { return chain{a.Variant, a.Chain} }

// checkConstraints checks the shards in flight after a step against the constraints,
// and that the step sent the shards of each chain in order.
func (w *twin) checkConstraints(was, now State) {
	c := w.rules.Constraints
	inChain, ofVariant := map[chain]int{}, map[uint32]int{}
	for _, r := range now.Open() {
		for n := r.Lo; n < r.Hi; n++ {
			a := w.attributes(n)
			inChain[chainOf(a)]++
			ofVariant[a.Variant]++
		}
	}
	for k, n := range inChain {
		if c.Chains && k.chain != 0 && n > 1 {
			w.t.Fatalf("%d shards of chain %v are in flight: %v", n, k, now.InFlight.Chunks)
		}
	}
	for v, n := range ofVariant {
		limit := c.MaxInFlightByVariant
		if int(v) < len(c.OfVariants) {
			limit = c.OfVariants[v]
		}
		if limit > 0 && n > limit {
			w.t.Fatalf("%d shards of variant %d are in flight, at most %d may be", n, v, limit)
		}
	}
	if limit := c.MaxInFlight; limit > 0 && now.InFlight.Len() > limit {
		w.t.Fatalf("%d shards are in flight, at most %d may be", now.InFlight.Len(), limit)
	}
	for _, e := range now.Effects {
		if e.Kind != Send {
			continue
		}
		for n := e.Range.Lo; n < e.Range.Hi; n++ {
			if !was.WasSent(n) {
				w.checkFirstSend(now, n)
			}
		}
	}
}

// checkFirstSend checks a shard that is sent for the first time.
func (w *twin) checkFirstSend(now State, n int) {
	a := w.attributes(n)
	if now.Pruned.Has(a.Variant, n) {
		w.t.Fatalf("shard %d of variant %d is sent, of which %v are pruned", n, a.Variant, now.Pruned)
	}
	if limit := w.world.Looks.Limit; limit > 0 && n >= limit {
		w.t.Fatalf("shard %d is sent before the look is decided that it waits for: %+v", n, w.world.Looks)
	}
	if !w.rules.Constraints.Chains || a.Chain == 0 {
		return
	}
	for _, r := range now.Done.Set.Missing(interval.Range{Lo: 0, Hi: n}) {
		for m := r.Lo; m < r.Hi; m++ {
			if chainOf(w.attributes(m)) == chainOf(a) {
				w.t.Fatalf("shard %d is sent before shard %d of its chain is done", n, m)
			}
		}
	}
}
