package gate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// comparisons draws pairs: 0/1 or graded scores, of tickets with up to three samples, of
// which some failed.
var comparisons = rapid.Custom(func(t *rapid.T) []Pair {
	scores := rapid.SampledFrom([][]float64{{0, 1}, {0, 0.5, 1}, {0.1, 0.2, 0.3, 0.7, math.NaN()}}).Draw(t, "scores")
	samples := rapid.IntRange(1, 3).Draw(t, "samples")
	better := rapid.Bool().Draw(t, "better")
	out := make([]Pair, rapid.IntRange(0, 40).Draw(t, "tickets"))
	for i := range out {
		out[i].Ticket = fmt.Sprint(i)
		for range samples {
			after := rapid.SampledFrom(scores).Draw(t, "after")
			if better && rapid.Bool().Draw(t, "best") {
				after = 1
			}
			out[i].Before = append(out[i].Before, rapid.SampledFrom(scores).Draw(t, "before"))
			out[i].After = append(out[i].After, after)
		}
	}
	return out
})

// rules draws rules with few resamples, for speed.
var rules = rapid.Custom(func(t *rapid.T) Rule {
	return Rule{
		Alpha:      rapid.SampledFrom([]float64{0.05, 0.2, 0.5}).Draw(t, "alpha"),
		Candidates: rapid.IntRange(1, 2).Draw(t, "candidates"),
		Resamples:  rapid.IntRange(40, 100).Draw(t, "resamples"),
		Seed:       rapid.Uint64().Draw(t, "seed"),
		MinPairs:   rapid.IntRange(0, 10).Draw(t, "min pairs"),
		MinGain:    rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "min gain"),
		MaxBroken:  rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "max broken"),
	}
})

// TestAcceptedMeansThatEveryConditionHolds checks verdicts against the rule.
func TestAcceptedMeansThatEveryConditionHolds(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		pairs, rule := comparisons.Draw(t, "pairs"), rules.Draw(t, "rule")
		if err := rule.Check(); err != nil {
			t.Fatal(err)
		}
		v := Compare(pairs, rule)
		holds := v.Tickets >= rule.MinPairs && v.Gain > rule.MinGain && v.P <= rule.Alpha/float64(rule.Candidates) &&
			float64(v.Broken) <= rule.MaxBroken*float64(v.Tickets) && (v.Test == McNemar || v.Interval[0] > 0)
		if v.Accepted != holds || v.Accepted != (v.Reason == Accepted) {
			t.Fatalf("%+v by %+v", v, rule)
		}
		if v.Interval[0] > v.Interval[1] || v.P <= 0 || v.P > 1 || v.Fixed+v.Broken > v.Tickets ||
			math.Abs(v.After-v.Before-v.Gain) > 1e-12 {
			t.Fatalf("%+v", v)
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
		if v.Accepted {
			accepted++
		}
	})
	if accepted == 0 {
		t.Error("no candidate was accepted, so that the test shows nothing")
	}
}

// TestOrderOfPairsChangesNothing checks that completion order has no influence.
func TestOrderOfPairsChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pairs, rule := comparisons.Draw(t, "pairs"), rules.Draw(t, "rule")
		want := Compare(pairs, rule)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		if got := Compare(pairs, rule); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// TestIncomparableTicketsChangeNothing checks that a failed sample is no score.
func TestIncomparableTicketsChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pairs, rule := comparisons.Draw(t, "pairs"), rules.Draw(t, "rule")
		want := Compare(pairs, rule)
		pairs = append(pairs, Pair{"a", []float64{math.NaN(), 0}, []float64{1, math.NaN()}}, Pair{Ticket: "b"},
			Pair{"c", []float64{1}, nil})
		want.LeftOut += 3
		if got := Compare(pairs, rule); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// TestExchangingBeforeAndAfterNegatesTheGain checks that no side is favoured.
func TestExchangingBeforeAndAfterNegatesTheGain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pairs, rule := comparisons.Draw(t, "pairs"), rules.Draw(t, "rule")
		v := Compare(pairs, rule)
		for i := range pairs {
			pairs[i].Before, pairs[i].After = pairs[i].After, pairs[i].Before
		}
		w := Compare(pairs, rule)
		if w.Gain != -v.Gain || w.Interval != [2]float64{-v.Interval[1], -v.Interval[0]} ||
			w.Fixed != v.Broken || w.Broken != v.Fixed || w.Accepted && v.Accepted {
			t.Fatalf("%+v and %+v", v, w)
		}
	})
}

// TestSamplesOfATicketAreNoFurtherEvidence checks that asking each ticket several times
// with the same outcome says no more than asking it once.
func TestSamplesOfATicketAreNoFurtherEvidence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pairs, rule := comparisons.Draw(t, "pairs"), rules.Draw(t, "rule")
		for i := range pairs {
			pairs[i].Before, pairs[i].After = pairs[i].Before[:1], pairs[i].After[:1]
		}
		once := Compare(pairs, rule)
		for i := range pairs {
			pairs[i].Before, pairs[i].After = slices.Repeat(pairs[i].Before, 4), slices.Repeat(pairs[i].After, 4)
		}
		often := Compare(pairs, rule)
		if often.Tickets != once.Tickets || often.Fixed != once.Fixed || often.Broken != once.Broken {
			t.Fatalf("%+v, want %+v", often, once)
		}
		for i := range often.Interval {
			if math.Abs(often.Interval[i]-once.Interval[i]) > 1e-9 {
				t.Fatalf("%+v, want %+v", often, once)
			}
		}
	})
}
