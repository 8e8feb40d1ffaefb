package pareto_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/pareto"
)

var none = math.NaN()

func TestReduce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scores [][]float64
		limit  int
		want   string
	}{
		"no member":                      {nil, 4, "[]"},
		"one member":                     {[][]float64{{0, 0}}, 4, "[{0 2}]"},
		"a member without a score":       {[][]float64{{none, none}, {0, 0}}, 4, "[{1 2}]"},
		"no score at all":                {[][]float64{{none}, {}}, 4, "[]"},
		"each is best on a half":         {[][]float64{{1, 1, 0, 0}, {0, 0, 1, 1}, {0.5, 0.5, 0.5, 0.5}}, 4, "[{0 2} {1 2}]"},
		"one is better everywhere":       {[][]float64{{0, 0.5}, {0.5, 1}}, 4, "[{1 2}]"},
		"equal ones: the first stays":    {[][]float64{{0, 1}, {0, 1}, {1, 0}}, 4, "[{0 1} {2 1}]"},
		"shared tickets count for both":  {[][]float64{{1, 1, 0}, {0, 1, 1}}, 4, "[{0 2} {1 2}]"},
		"two together make one needless": {[][]float64{{1, 1, 0, 0}, {1, 0, 0, 1}, {0, 1, 1, 0}}, 4, "[{1 2} {2 2}]"},
		"a better one has fewer scores":  {[][]float64{{1, none}, {0.9, 0.1}}, 4, "[{0 1} {1 1}]"},
		"missing at the end":             {[][]float64{{1}, {0, 0}}, 4, "[{0 1} {1 1}]"},
		"too many: the least leaves":     {[][]float64{{1, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0.5, 1}}, 2, "[{0 2} {2 2}]"},
		"too many: the last of equals":   {[][]float64{{1, 0}, {0, 1}}, 1, "[{0 2}]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(pareto.Reduce(c.scores, c.limit)); got != c.want {
				t.Errorf("%s stay, want %s", got, c.want)
			}
		})
	}
}

// fewScores draws members over the same tickets. Few scores are in use, so that ties are
// frequent, and some are missing.
var fewScores = rapid.Custom(func(t *rapid.T) [][]float64 {
	tickets := rapid.IntRange(0, 8).Draw(t, "tickets")
	one := rapid.SampledFrom([]float64{0, 0.25, 0.5, 1, none})
	return rapid.SliceOfN(rapid.SliceOfN(one, tickets, tickets), 0, 8).Draw(t, "scores")
})

// TestReduceEqualsItsTwin compares with the algorithm as GEPA states it, over sets: as long
// as some member is dominated, the one with the lowest mean of these leaves.
func TestReduceEqualsItsTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scores := fewScores.Draw(t, "members")
		want := twin(scores)
		got := pareto.Reduce(scores, len(scores))
		if !maps.Equal(setOf(got), want) {
			t.Fatalf("%v stay, want %v", got, want)
		}
	})
}

// twin returns the members that stay, with the number of tickets that they are best on.
func twin(scores [][]float64) map[int]int {
	front := func(ticket int, of map[int]int) (best []int) {
		for n := range scores {
			_, there := of[n]
			better := slices.ContainsFunc(slices.Collect(maps.Keys(of)), func(o int) bool {
				return scores[o][ticket] > scores[n][ticket]
			})
			if there && !better && !math.IsNaN(scores[n][ticket]) {
				best = append(best, n)
			}
		}
		return best
	}
	left, tickets := map[int]int{}, 0
	for n := range scores {
		left[n], tickets = 0, len(scores[n])
	}
	average := func(n int) float64 {
		sum, count := 0.0, 0
		for _, s := range scores[n] {
			if s == s {
				sum, count = sum+s, count+1
			}
		}
		if count == 0 {
			return -1
		}
		return sum / float64(count)
	}
	for {
		worst := -1
		for n := range left {
			dominated := true
			for ticket := range tickets {
				best := front(ticket, left)
				dominated = dominated && (!slices.Contains(best, n) || len(best) > 1)
			}
			if !dominated {
				continue
			}
			if worst < 0 || average(n) < average(worst) || average(n) == average(worst) && n > worst {
				worst = n
			}
		}
		if worst < 0 {
			break
		}
		delete(left, worst)
	}
	for ticket := range tickets {
		for _, n := range front(ticket, left) {
			left[n]++
		}
	}
	return left
}

func setOf(kept []pareto.Kept) map[int]int {
	out := map[int]int{}
	for _, k := range kept {
		out[k.Member] = k.Best
	}
	return out
}

// TestLimitKeepsAFrontOfItsOwn checks that with a limit as many stay as may, that they are in order, and that
// none of them is dominated by the others.
func TestLimitKeepsAFrontOfItsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scores := fewScores.Draw(t, "members")
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		all, some := pareto.Reduce(scores, len(scores)), pareto.Reduce(scores, limit)
		if len(some) != min(limit, len(all)) {
			t.Fatalf("%v stay of %v, at most %d may", some, all, limit)
		}
		var own [][]float64
		for i, k := range some {
			if i > 0 && k.Member <= some[i-1].Member || setOf(all)[k.Member] == 0 {
				t.Fatalf("%v stay of %v", some, all)
			}
			own = append(own, scores[k.Member])
		}
		for i, k := range pareto.Reduce(own, limit) {
			if k.Member != i || k.Best != some[i].Best {
				t.Fatalf("of %v, %v stay", some, pareto.Reduce(own, limit))
			}
		}
	})
}

// TestDrawFollowsTheWeights draws with many seeds: each member comes as often as its weight
// says, and the same seed draws the same one.
func TestDrawFollowsTheWeights(t *testing.T) {
	t.Parallel()
	members := []pareto.Kept{{Member: 2, Best: 1}, {Member: 5, Best: 6}, {Member: 7, Best: 3}}
	const draws = 20_000
	count := map[int]int{}
	for seed := range uint64(draws) {
		count[pareto.Draw(members, seed).Member]++
	}
	for _, m := range members {
		want := float64(m.Best) / 10 * draws
		if got := float64(count[m.Member]); math.Abs(got-want) > 5*math.Sqrt(want) {
			t.Errorf("member %d is drawn %v times, want about %v", m.Member, got, want)
		}
	}
	if count[2]+count[5]+count[7] != draws {
		t.Errorf("others are drawn: %v", count)
	}
}

// TestDrawsStayTheSame has draws that no later version may change: runs repeat them.
func TestDrawsStayTheSame(t *testing.T) {
	t.Parallel()
	members := []pareto.Kept{{Member: 0, Best: 1}, {Member: 1, Best: 2}, {Member: 2, Best: 1}}
	got := ""
	for seed := range uint64(24) {
		got += fmt.Sprint(pareto.Draw(members, seed).Member)
	}
	if want := "101110211111211221101221"; got != want {
		t.Errorf("drawn are %s, want %s", got, want)
	}
	if one := members[1:2]; pareto.Draw(one, 5) != one[0] {
		t.Error("the only member is not drawn")
	}
}
