package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
)

// Allowance is how much each shard of a range may spend in all its attempts, of each
// budget that the run has.
// A shard that has used up its allowance is handed back and waits for a larger one:
//
//	planned ──send──▶ spends ──────────────done──────────────▶ (no allowance; what is left is free)
//	                  │    ▲                                     ▲
//	              used up  └──send, with more──┐                 │ sealed, when the run ends
//	                  └──────▶ waits ──────────┴─────────────────┘
//
// The allowance of an open shard never shrinks, so that a message that is repeated or
// late pays for nothing that a newer one does not.
type Allowance struct {
	interval.Range
	cost.Spend
	// Waits says that each shard of the range has spent that and is not in flight.
	Waits bool
}

// Allowances are those of all open shards of a run with a budget, disjoint and
// in order. The methods change them in place. Other runs have none.
type Allowances []Allowance

// Of returns the allowance of shard n, and false if it has none.
func (as Allowances) Of(n int) (Allowance, bool) {
	i := sort.Search(len(as), func(k int) bool { return as[k].Hi > n })
	if i < len(as) && as[i].Lo <= n {
		return as[i], true
	}
	return Allowance{}, false
}

// Waiting returns the shards that wait for a larger allowance, in order.
func (as Allowances) Waiting() (shards []int) {
	for _, a := range as {
		for n := a.Lo; a.Waits && n < a.Hi; n++ {
			shards = append(shards, n)
		}
	}
	return shards
}

// total returns what all shards may spend, and of that what waiting shards have spent.
func (as Allowances) total() (all, waiting cost.Spend) {
	for _, a := range as {
		of := a.Times(a.Len())
		all = all.Plus(of)
		if a.Waits {
			waiting = waiting.Plus(of)
		}
	}
	return all, waiting
}

// set replaces the allowances of the shards of a.
func (as *Allowances) set(a Allowance) {
	i := as.remove(a.Range)
	*as = slices.Insert(*as, i, a)
	as.join(i)
	if i > 0 {
		as.join(i - 1)
	}
}

// remove removes the allowances of the shards of r, and returns the index for a new
// one of r.
func (as *Allowances) remove(r interval.Range) int {
	i := sort.Search(len(*as), func(k int) bool { return (*as)[k].Hi > r.Lo })
	j := sort.Search(len(*as), func(k int) bool { return (*as)[k].Lo >= r.Hi })
	if i >= j {
		return i
	}
	var rest []Allowance // the parts outside r
	if a := (*as)[i]; a.Lo < r.Lo {
		a.Hi = r.Lo
		rest = append(rest, a)
	}
	at := i + len(rest)
	if a := (*as)[j-1]; a.Hi > r.Hi {
		a.Lo = r.Hi
		rest = append(rest, a)
	}
	*as = slices.Replace(*as, i, j, rest...)
	return at
}

// join merges allowances i and i+1 if they touch and are equal.
func (as *Allowances) join(i int) {
	if i+1 >= len(*as) {
		return
	}
	a, b := (*as)[i], (*as)[i+1]
	if a.Hi == b.Lo && a.Spend == b.Spend && a.Waits == b.Waits {
		(*as)[i].Hi = b.Hi
		*as = slices.Delete(*as, i+1, i+2)
	}
}

// MarshalJSON writes [[first shard,shards,tokens],…]. Shards that wait have a fourth
// number, 1, and those of a run with a budget in dollars a fifth one, millionths of a
// dollar; then the fourth number of others is 0.
func (as Allowances) MarshalJSON() ([]byte, error) {
	rows := make([][]int64, len(as))
	for i, a := range as {
		rows[i] = []int64{int64(a.Lo), int64(a.Len()), a.Tokens}
		switch {
		case a.Waits:
			rows[i] = append(rows[i], 1)
		case a.MicroUSD > 0:
			rows[i] = append(rows[i], 0)
		}
		if a.MicroUSD > 0 {
			rows[i] = append(rows[i], a.MicroUSD)
		}
	}
	return json.Marshal(rows)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (as *Allowances) UnmarshalJSON(b []byte) error {
	var rows [][]int64
	if err := json.Unmarshal(b, &rows); err != nil {
		return err
	}
	var out Allowances
	for _, row := range rows {
		if len(row) < 3 || row[0] < 0 || row[1] <= 0 || row[2] < 0 || len(row) > 4 && row[4] < 0 {
			return fmt.Errorf("allowances: %v is not a range of shards with tokens and money", row)
		}
		lo := int(row[0])
		if n := len(out); n > 0 && out[n-1].Hi > lo {
			return fmt.Errorf("allowances: shard %d has two", lo)
		}
		a := Allowance{Range: interval.Range{Lo: lo, Hi: lo + int(row[1])}, Spend: cost.Spend{Tokens: row[2]},
			Waits: len(row) > 3 && row[3] != 0}
		if len(row) > 4 {
			a.MicroUSD = row[4]
		}
		out = append(out, a)
	}
	*as = out
	return nil
}
