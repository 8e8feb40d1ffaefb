package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"rollout/shared/core/interval"
)

// Gaps are the shards that a scan passed without sending them, because a constraint
// refused them. The zero value has none. It is a part of the run's document.
//
// The heads say where to search for them. With NextShard, the first shard that no
// scan has passed, these hold after each scan:
//
//   - A chain with a shard in flight needs no head: when that shard is done, the chain
//     gets one behind it.
//   - A chain with a head has no skipped shard before it.
//   - Any other shard belongs to the rest of its variant, lane (v, 0). If the rest has
//     a head, no such shard is skipped before it; if it has none, no such shard is
//     skipped.
//   - Pruned shards are skipped, and no head searches for them.
//
// So the first shard of a lane that a search meets from its head on is the first of
// the lane that was not sent: chains keep their order, and every skipped shard is
// found in the end.
type Gaps struct {
	Skipped interval.Set `json:"skipped,omitzero"`
	Heads   Heads        `json:"heads,omitempty"`
	// Cursor is the shard at which the next scan begins to search. After the last
	// head it goes on with the first one.
	Cursor int `json:"cursor,omitempty"`
}

// Head is where to search for the next shard of a lane: at shard At, or after it.
type Head struct {
	At             int
	Variant, Chain uint32
}

func (h Head) lane() lane { return lane{h.Variant, h.Chain} }

// compare orders heads by their shard, and those of one shard by their lane.
func (h Head) compare(o Head) int {
	return cmp.Or(cmp.Compare(h.At, o.At), cmp.Compare(h.Variant, o.Variant), cmp.Compare(h.Chain, o.Chain))
}

// Heads are the heads of different lanes, sorted by At.
type Heads []Head

// Clone returns an independent copy.
func (g Gaps) Clone() Gaps {
	g.Skipped, g.Heads = g.Skipped.Clone(), slices.Clone(g.Heads)
	return g
}

// Release gives each chain whose shard in flight is done a head behind that shard,
// if any shard behind it is skipped. When there are many heads, the chain joins the
// rest of its variant. finished are those shards; rows must have their attributes.
func (g *Gaps) Release(finished []int, rows Pages, c Constraints) {
	if !c.Chains {
		return
	}
	heads := make(map[lane]int, len(g.Heads)+len(finished)) // where each lane is searched
	for _, h := range g.Heads {
		heads[h.lane()] = h.At
	}
	read := reader{pages: rows}
	for _, n := range finished {
		a, _ := read.at(n)
		l, at := a.lane(true), n+1
		_, has := heads[l]
		if _, more := g.Skipped.Next(at); has || !more || l.chain == 0 {
			continue
		}
		if len(heads) >= maxHeads {
			l.chain = 0
			if rest, has := heads[l]; has {
				at = min(at, rest)
			}
		}
		heads[l] = at
	}
	g.Heads = make(Heads, 0, len(heads))
	for l, at := range heads {
		g.Heads = append(g.Heads, Head{at, l.variant, l.chain})
	}
	slices.SortFunc(g.Heads, Head.compare)
}

// Prune drops the heads that search for shards of a variant which are not sent any more. The
// shards stay skipped.
func (g *Gaps) Prune(v PrunedVariant) {
	g.Heads = slices.DeleteFunc(g.Heads, func(h Head) bool { return h.Variant == v.Variant && h.At >= v.From })
}

// MarshalJSON writes [gap,variant,chain,gap,variant,chain,…]: each shard as the
// distance from the one before.
func (hs Heads) MarshalJSON() ([]byte, error) {
	out := make([]int64, 0, 3*len(hs))
	at := 0
	for _, h := range hs {
		out = append(out, int64(h.At-at), int64(h.Variant), int64(h.Chain))
		at = h.At
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (hs *Heads) UnmarshalJSON(b []byte) error {
	var v []int64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if len(v)%3 != 0 {
		return fmt.Errorf("heads of %d numbers, which are not three for each", len(v))
	}
	var out Heads
	at := int64(0)
	for i := 0; i < len(v); i += 3 {
		if gap := v[i]; gap < 0 || gap > math.MaxInt-at {
			return fmt.Errorf("heads with a gap of %d after %d", gap, at)
		}
		if v[i+1] < 0 || v[i+1] > math.MaxUint32 || v[i+2] < 0 || v[i+2] > math.MaxUint32 {
			return fmt.Errorf("heads of variant %d, chain %d", v[i+1], v[i+2])
		}
		at += v[i]
		out = append(out, Head{At: int(at), Variant: uint32(v[i+1]), Chain: uint32(v[i+2])})
	}
	*hs = out
	return nil
}
