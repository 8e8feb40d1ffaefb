package statistics

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Reducer makes one score of the scores of an item's repetitions.
type Reducer struct {
	name string
	k    int // of those that count right repetitions
}

// The reducers by name; K stands for a number from 1 on.
//
//	mean, median, max
//	mode        the most frequent score; of several, the one that came first
//	at_least_K  1 if at least K repetitions are right, otherwise 0
//	pass_at_K   the probability that at least one of K repetitions is right
//	pass_all_K  the probability that all of K repetitions are right, often written pass^k
var reducers = []string{"mean", "median", "max", "mode", "at_least_K", "pass_at_K", "pass_all_K"}

// ParseReducer returns the reducer of that name, such as "mean" or "pass_at_5".
func ParseReducer(text string) (Reducer, error) {
	for _, name := range reducers {
		stem, counts := strings.CutSuffix(name, "K")
		if !counts && text == name {
			return Reducer{name: name}, nil
		}
		if rest, ok := strings.CutPrefix(text, stem); counts && ok {
			if k, err := strconv.Atoi(rest); err == nil && k > 0 && rest == strconv.Itoa(k) {
				return Reducer{stem, k}, nil
			}
		}
	}
	return Reducer{}, fmt.Errorf("%q is not a reducer: use %s, with a number from 1 on for K",
		text, strings.Join(reducers, ", "))
}

// String returns the name that ParseReducer takes.
func (r Reducer) String() string {
	if r.k == 0 {
		return r.name
	}
	return r.name + strconv.Itoa(r.k)
}

// Reduce returns the score of the repetitions that have one; a repetition without is left
// out by the caller. A repetition is right from the score right on. It is NaN without a
// score, and if pass_at_K and pass_all_K have fewer than K: what K would give is not known
// then.
//
// pass_at_K is 1 − C(n−c,k)/C(n,k) for c right ones of n (Chen et al., Evaluating Large
// Language Models Trained on Code, 2021), pass_all_K is C(c,k)/C(n,k): both are unbiased.
func (r Reducer) Reduce(scores []float64, right float64) float64 {
	n := len(scores)
	if n == 0 {
		return math.NaN()
	}
	count := 0
	for _, s := range scores {
		if s >= right {
			count++
		}
	}
	switch r.name {
	case "median":
		sorted := slices.Sorted(slices.Values(scores))
		return sorted[(n-1)/2]/2 + sorted[n/2]/2
	case "max":
		return slices.Max(scores)
	case "mode":
		return mode(scores)
	case "at_least_":
		if count >= r.k {
			return 1
		}
		return 0
	case "pass_at_":
		if n < r.k {
			return math.NaN()
		}
		return 1 - allOf(n-count, n, r.k)
	case "pass_all_":
		if n < r.k {
			return math.NaN()
		}
		return allOf(count, n, r.k)
	}
	sum := 0.0
	for _, s := range scores {
		sum += s
	}
	return sum / float64(n)
}

// allOf returns C(c,k) / C(n,k): the probability that k drawn of n are all among c of them.
func allOf(c, n, k int) float64 {
	share := 1.0
	for i := range k {
		share *= max(0, float64(c-i)) / float64(n-i)
	}
	return share
}

// mode returns the most frequent score; of several, the one that came first.
func mode(scores []float64) float64 {
	times := map[float64]int{}
	for _, s := range scores {
		times[s]++
	}
	most := slices.Max(slices.Collect(maps.Values(times)))
	return scores[slices.IndexFunc(scores, func(s float64) bool { return cmp.Compare(times[s], most) == 0 })]
}
