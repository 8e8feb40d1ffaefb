package ratelimit

import (
	"cmp"
	"slices"
	"time"
)

// targets returns what each holder shall have, in the order of grants: for each part
// of the limit, all have the same, unless a holder wants less or can do with nothing
// less than more. While the limit has no room for the least share of all, they take
// turns.
func (r Rules) targets(grants []Grant, now time.Time) []Amount {
	order := r.admitted(grants, now)
	out := make([]Amount, len(grants))
	limit := r.Limit.vector()
	var shares [resources][]int64
	for k := range resources {
		want, least := make([]int64, len(order)), make([]int64, len(order))
		for i, n := range order {
			want[i], least[i] = grants[n].Want.vector()[k], grants[n].Least.vector()[k]
		}
		shares[k] = divide(limit[k], want, least)
	}
	for i, n := range order {
		var v [resources]int64
		for k := range resources {
			v[k] = shares[k][i]
		}
		out[n] = amount(v)
	}
	return out
}

// turn is how long a worker may use its share, at least, while others wait for one.
const turn = Minute

// admitted returns the holders that the limit has room for. Those whose turn is not over
// come first, then those that wait, the longest first.
func (r Rules) admitted(grants []Grant, now time.Time) []int {
	var order []int
	for i, g := range grants {
		if !g.Want.IsZero() {
			order = append(order, i)
		}
	}
	rank := func(g Grant) int {
		switch {
		case g.Share.IsZero():
			return 1
		case now.Sub(g.Since) < turn:
			return 0
		}
		return 2
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := grants[i], grants[j]
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since), cmp.Compare(a.Worker, b.Worker))
	})
	room := r.Limit
	return slices.DeleteFunc(order, func(i int) bool {
		if !grants[i].Least.Within(room) {
			return true
		}
		room = room.Minus(grants[i].Least)
		return false
	})
}

// divide divides a limit among those that want a part of it: each gets at least its
// least, which fit in together, and as much as each other that wants as much. The
// remainder goes to the first ones.
func divide(limit int64, want, least []int64) []int64 {
	out := slices.Clone(least)
	for _, v := range least {
		limit -= v
	}
	for limit > 0 {
		// Those with the lowest level rise together, to what the next level or the
		// least of their wants is.
		level, next, n := int64(-1), int64(-1), int64(0)
		for i, v := range out {
			if v >= want[i] {
				continue
			}
			switch {
			case level < 0 || v < level:
				if level >= 0 {
					next = level
				}
				level, n = v, 1
			case v == level:
				n++
			case next < 0 || v < next:
				next = v
			}
		}
		if n == 0 {
			break // all have what they want
		}
		for i, v := range out {
			if v == level && want[i] > v && (next < 0 || want[i] < next) {
				next = want[i]
			}
		}
		rise := min(next-level, limit/n)
		extra := int64(0)
		if rise == 0 {
			extra = limit // fewer than one for each
		}
		for i, v := range out {
			if v != level || v >= want[i] {
				continue
			}
			switch {
			case rise > 0:
				out[i] += rise
				limit -= rise
			case extra > 0:
				out[i]++
				extra--
				limit--
			}
		}
	}
	return out
}
