package statistics

import (
	"cmp"
	"slices"
)

// Holm returns the P of several comparisons, adjusted so that the probability of one or more
// false ones among those at most alpha is at most alpha, however they depend on each other.
// (Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.)
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted, least := make([]float64, len(p)), 0.0
	for rank, i := range order {
		least = max(least, min(1, float64(len(p)-rank)*p[i]))
		adjusted[i] = least
	}
	return adjusted
}
