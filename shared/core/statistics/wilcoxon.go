package statistics

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Tails are the P of a test for each question that it answers.
type Tails struct {
	Greater float64 // is the difference above 0?
	Less    float64 // is it below 0?
	Both    float64 // does it differ from 0?
}

// maxExact is the most differences for which Wilcoxon counts all patterns of signs.
const maxExact = 50

// Wilcoxon returns the P of the signed-rank test of differences between pairs. Differences
// of 0 say nothing. Up to 50 others, all patterns of signs are counted, also where sizes are
// equal, so that P is exact; beyond, the sum of ranks is taken as normally distributed,
// with the correction for equal sizes. Without a difference P is 1. (Wilcoxon 1945; Pratt
// and Gibbons, Concepts of Nonparametric Theory, 1981, chapter 3.)
func Wilcoxon(differences []float64) Tails {
	d := slices.DeleteFunc(slices.Clone(differences), func(x float64) bool { return x == 0 })
	if len(d) == 0 {
		return Tails{1, 1, 1}
	}
	slices.SortFunc(d, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	// Ranks are doubled, so that the mean rank of equal sizes is a whole number.
	ranks, positive, total := make([]int, len(d)), 0, 0
	ties := 0.0 // Σ t³−t over the sets of t equal sizes
	for from := 0; from < len(d); {
		to := from + 1
		for to < len(d) && math.Abs(d[to]) == math.Abs(d[from]) {
			to++
		}
		t := float64(to - from)
		ties += t*t*t - t
		for i := from; i < to; i++ {
			ranks[i] = from + to + 1
			total += ranks[i]
			if d[i] > 0 {
				positive += ranks[i]
			}
		}
		from = to
	}
	if len(d) <= maxExact {
		return exactTails(ranks, positive, total)
	}
	n := float64(len(d))
	deviation := math.Sqrt(n*(n+1)*(2*n+1)/24 - ties/48)
	z := (float64(positive)/2 - n*(n+1)/4) / deviation
	p := distuv.UnitNormal.Survival(math.Abs(z))
	if z < 0 {
		return Tails{Greater: 1 - p, Less: p, Both: 2 * p}
	}
	return Tails{Greater: p, Less: 1 - p, Both: 2 * p}
}

// exactTails counts the patterns of signs by the sum of the positive ranks.
func exactTails(ranks []int, positive, total int) Tails {
	share := make([]float64, total+1) // of the patterns with that sum
	share[0] = 1
	for _, r := range ranks {
		for s := total; s >= 0; s-- {
			share[s] /= 2
			if s >= r {
				share[s] += share[s-r] / 2
			}
		}
	}
	var t Tails
	for s, p := range share {
		if s >= positive {
			t.Greater += p
		}
		if s <= positive {
			t.Less += p
		}
	}
	t.Greater, t.Less = min(1, t.Greater), min(1, t.Less) // sums may round up
	t.Both = min(1, 2*min(t.Greater, t.Less))
	return t
}
