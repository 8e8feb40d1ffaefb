package pareto

import (
	"cmp"
	"math"
	"slices"
)

// Kept is a member that stays.
type Kept struct {
	Member int // its index
	Best   int // how many tickets it is among the best on, at least 1
}

// Reduce returns the members that stay, in their order, at most limit of them. scores has
// the scores of each member by ticket, in one order of tickets for all: NaN, or missing at
// the end, is a ticket without a score.
//
// A member is best on a ticket if it has a score there and no member has a higher one. The
// members leave one by one, the one with the lowest mean first, and of equal ones the last:
// a member leaves if there is another best one on each ticket that it is best on. So on
// each ticket a best one stays, and each member that stays is the only best one somewhere.
// Of more than limit, those that are best on the fewest tickets leave too.
func Reduce(scores [][]float64, limit int) []Kept {
	left := make([]int, len(scores))
	means := make([]float64, len(scores))
	for n := range scores {
		left[n], means[n] = n, mean(scores[n])
	}
	weakest := slices.Clone(left)
	slices.SortFunc(weakest, func(a, b int) int { return cmp.Or(cmp.Compare(means[a], means[b]), b-a) })
	f := newFronts(scores, left)
	for _, n := range weakest {
		if f.covered(n) {
			f.remove(n)
			left = without(left, n)
		}
	}
	for len(left) > limit {
		least := slices.MinFunc(left, func(a, b int) int {
			return cmp.Or(f.best[a]-f.best[b], cmp.Compare(means[a], means[b]), b-a)
		})
		left = without(left, least)
		f = newFronts(scores, left) // where it was the only best one, others are now
	}
	out := make([]Kept, len(left))
	for i, n := range left {
		out[i] = Kept{n, f.best[n]}
	}
	return out
}

func without(members []int, n int) []int {
	return slices.DeleteFunc(slices.Clone(members), func(m int) bool { return m == n })
}

// mean returns the mean of the scores, or −∞ without one.
func mean(scores []float64) float64 {
	sum, n := 0.0, 0
	for _, s := range scores {
		if !math.IsNaN(s) {
			sum, n = sum+s, n+1
		}
	}
	if n == 0 {
		return math.Inf(-1)
	}
	return sum / float64(n)
}

// fronts are the tickets with their best members.
type fronts struct {
	tickets [][]int // of each ticket: its best members
	best    []int   // of each member: how many tickets it is best on
}

// newFronts returns the best ones among some of the members.
func newFronts(scores [][]float64, members []int) fronts {
	count := 0
	for _, n := range members {
		count = max(count, len(scores[n]))
	}
	f := fronts{make([][]int, count), make([]int, len(scores))}
	for t := range f.tickets {
		highest := math.Inf(-1)
		for _, n := range members {
			if t >= len(scores[n]) || math.IsNaN(scores[n][t]) || scores[n][t] < highest {
				continue
			}
			if scores[n][t] > highest {
				highest, f.tickets[t] = scores[n][t], nil
			}
			f.tickets[t] = append(f.tickets[t], n)
		}
		for _, n := range f.tickets[t] {
			f.best[n]++
		}
	}
	return f
}

// covered reports whether a member is the only best one nowhere.
func (f fronts) covered(member int) bool {
	return !slices.ContainsFunc(f.tickets, func(best []int) bool { return len(best) == 1 && best[0] == member })
}

// remove takes a covered member from the fronts.
func (f fronts) remove(member int) {
	for t, best := range f.tickets {
		f.tickets[t] = slices.DeleteFunc(best, func(n int) bool { return n == member })
	}
	f.best[member] = 0
}
