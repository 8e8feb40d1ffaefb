package run

import (
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// drawLooks makes the run one that prunes, with the places of its looks.
func (w *twin) drawLooks() {
	w.pruned = map[uint32]int{}
	shards := rapid.SampledFrom([]int{3, 40, 400}).Draw(w.t, "shards of looks")
	looks := rapid.IntRange(1, min(shards-2, 5)).Draw(w.t, "number of looks")
	for k := range looks + 1 {
		w.places = append(w.places, (k+1)*shards/(looks+2))
	}
	w.places = append(slices.Compact(w.places), shards)
}

// planLooks plans all shards of a run that prunes.
func (w *twin) planLooks() {
	if w.world.Shards > 0 {
		return
	}
	w.world.Shards = w.places[len(w.places)-1]
	w.world.Items, w.world.Growing, w.world.Sources = uint64(w.world.Shards), true, 2
	w.setLooks(0)
}

// setLooks sets what the plan says of looks when so many are decided.
func (w *twin) setLooks(decided int) {
	w.world.Looks = Looks{Decided: decided}
	if decided+2 < len(w.places) {
		w.world.Looks.Next, w.world.Looks.Limit = w.places[decided], w.places[decided+1]
	}
}

// look decides the look that is due, or completes the plan.
func (w *twin) look() {
	next, frontier := w.world.Looks.Next, 0
	for w.docs[frontier] != nil && w.docs[frontier].state == "done" || w.isPruned(frontier) {
		frontier++
	}
	switch {
	case w.load().Reason != "" || w.world.Shards == 0:
	case next == 0 && frontier >= w.world.Shards:
		w.world.Complete, w.world.Growing = true, false
	case next > 0 && frontier >= next:
		decided := w.world.Looks.Decided
		if variant := uint32(decided % 3); decided%2 == 0 {
			if _, already := w.pruned[variant]; !already {
				w.pruned[variant] = w.world.Looks.Limit
			}
		}
		w.setLooks(decided + 1)
	}
	w.tell(Event{Kind: Reevaluate})
}

// isPruned reports whether a look has pruned shard n.
func (w *twin) isPruned(n int) bool {
	from, pruned := w.pruned[w.attributes(n).Variant]
	return pruned && n >= from && n < w.world.Shards
}

// newlyPruned returns the events of what looks have pruned and the state does not know.
func (w *twin) newlyPruned(s State) (out []Event) {
	for _, v := range slices.Sorted(maps.Keys(w.pruned)) {
		if !s.Pruned.HasVariant(v) {
			out = append(out, Event{Kind: VariantPruned, Variant: v, Shard: w.pruned[v], Why: "worse"})
		}
	}
	return out
}

// checkPruned checks that a run with looks that is done has sent the shards that no look has
// pruned, and no others.
func (w *twin) checkPruned(s State) {
	if len(w.places) == 0 || s.Reason != ReasonDone {
		return
	}
	for n := range w.world.Shards {
		if sent, pruned := w.docs[n] != nil, w.isPruned(n) && s.Pruned.Has(w.attributes(n).Variant, n); sent == pruned {
			w.t.Fatalf("shard %d of variant %d: sent %v, looks have pruned %v", n, w.attributes(n).Variant, sent, w.pruned)
		}
	}
}
