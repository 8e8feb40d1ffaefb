package statistics

import (
	"slices"

	"rollout/shared/core/splitmix"
)

// Bootstrap returns the interval that contains the mean with that confidence: its ends are
// quantiles of the mean over resamples in which each group was drawn with replacement, with
// all its scores (the percentile bootstrap of Efron and Tibshirani, An Introduction to the
// Bootstrap, 1993, chapter 13; of clusters: Field and Welsh, Bootstrapping Clustered Data,
// 2007). For a paired comparison the scores are differences. There must be a score and a
// resample. The time grows with the number of groups × resamples, at most maxDraws.
func Bootstrap(scores []Score, confidence float64, resamples int, seed uint64) [2]float64 {
	groups := sums(scores)
	resamples = max(1, min(resamples, maxDraws/len(groups)))
	random := splitmix.New(seed)
	means := make([]float64, resamples)
	for r := range means {
		var all groupSum
		for range groups {
			g := groups[random.Index(len(groups))]
			all.sum, all.n = all.sum+g.sum, all.n+g.n
		}
		means[r] = all.sum / float64(all.n)
	}
	slices.Sort(means)
	beyond := max(1, int((1-confidence)/2*float64(resamples+1)))
	return [2]float64{means[beyond-1], means[resamples-beyond]}
}

// maxDraws bounds the draws of all resamples of a Bootstrap.
const maxDraws = 100_000_000

// groupSum is the scores of a group.
type groupSum struct {
	sum float64
	n   int
}

// sums returns the groups in the order in which they come.
func sums(scores []Score) []groupSum {
	var groups []groupSum
	places := map[string]int{}
	for _, s := range scores {
		place, known := places[s.Group]
		if !known || s.Group == "" {
			place = len(groups)
			places[s.Group] = place
			groups = append(groups, groupSum{})
		}
		groups[place].sum += s.Value
		groups[place].n++
	}
	return groups
}
