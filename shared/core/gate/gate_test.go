package gate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"rollout/shared/fault"
)

// tickets returns n pairs, numbered from the offset on, with one score before and after.
func tickets(offset, n int, before, after float64) []Pair {
	out := make([]Pair, n)
	for i := range out {
		out[i] = Pair{fmt.Sprintf("t%04d", offset+i), []float64{before}, []float64{after}}
	}
	return out
}

// outcomes returns pairs of 0/1 scores: so many tickets that are fixed, broken, right both
// times, and wrong both times.
func outcomes(fixed, broken, right, wrong int) []Pair {
	return slices.Concat(tickets(0, fixed, 0, 1), tickets(1000, broken, 1, 0),
		tickets(2000, right, 1, 1), tickets(3000, wrong, 0, 0))
}

// usual returns the rule of a config that says nothing.
func usual() Rule {
	return Rule{Alpha: 0.05, Candidates: 1, Resamples: 2000, MinPairs: 20, MaxBroken: 0.1}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	with := func(change func(*Rule)) Rule {
		r := usual()
		change(&r)
		return r
	}
	for _, c := range []struct {
		name  string
		pairs []Pair
		rule  Rule
		want  Reason
		test  Test
	}{
		{"no tickets", nil, usual(), TooFew, McNemar},
		{"too few tickets", outcomes(19, 0, 0, 0), usual(), TooFew, McNemar},
		{"enough tickets", outcomes(20, 0, 0, 0), usual(), Accepted, McNemar},
		{"as many as the test needs", outcomes(5, 0, 0, 0), with(func(r *Rule) { r.MinPairs = 0 }), Accepted, McNemar},
		{"fewer than the test needs", outcomes(4, 0, 0, 0), with(func(r *Rule) { r.MinPairs = 0 }), TooFew, McNemar},
		{"nothing changes", outcomes(0, 0, 50, 50), usual(), NoGain, McNemar},
		{"as many fixed as broken", outcomes(9, 9, 50, 32), usual(), NoGain, McNemar},
		{"worse", outcomes(1, 9, 50, 40), usual(), NoGain, McNemar},
		{"all fixed of five", outcomes(5, 0, 50, 45), usual(), Accepted, McNemar},
		{"four fixed may be chance", outcomes(4, 0, 50, 46), usual(), NotSignificant, McNemar},
		{"more than broken, and may be chance", outcomes(12, 6, 50, 32), usual(), NotSignificant, McNemar},
		{"as many broken as allowed", outcomes(30, 10, 30, 30), usual(), Accepted, McNemar},
		{"one more", outcomes(30, 11, 30, 29), usual(), BreaksTooMany, McNemar},
		{"none may be broken", outcomes(30, 1, 30, 39), with(func(r *Rule) { r.MaxBroken = 0 }), BreaksTooMany, McNemar},
		{"not above the least gain", outcomes(10, 0, 45, 45), with(func(r *Rule) { r.MinGain = 0.1 }), NoGain, McNemar},
		{"above the least gain", outcomes(11, 0, 45, 44), with(func(r *Rule) { r.MinGain = 0.1 }), Accepted, McNemar},
		{"one of four candidates", outcomes(6, 0, 50, 44), with(func(r *Rule) { r.Candidates = 4 }), NotSignificant, McNemar},
		{"one of three candidates", outcomes(6, 0, 50, 44), with(func(r *Rule) { r.Candidates = 3 }), Accepted, McNemar},
		{"graded scores that all rise", tickets(0, 20, 0.5, 0.75), usual(), Accepted, Bootstrap},
		{"graded scores that do not change", tickets(0, 20, 0.25, 0.25), usual(), NoGain, Bootstrap},
		{"one large rise", append(tickets(0, 99, 0.25, 0.25), tickets(99, 1, 0, 100)...), usual(),
			NotSignificant, Bootstrap},
		{"small gains and many broken tickets", append(tickets(0, 40, 0.25, 5), tickets(40, 5, 0.75, 0.25)...), usual(),
			BreaksTooMany, Bootstrap},
	} {
		v := Compare(c.pairs, c.rule)
		if v.Reason != c.want || v.Test != c.test || v.Accepted != (c.want == Accepted) {
			t.Errorf("%s: accepted %v, %s by %s, want %s by %s: %+v", c.name, v.Accepted, v.Reason, v.Test, c.want, c.test, v)
		}
	}
}

func TestVerdictCounts(t *testing.T) {
	t.Parallel()
	v := Compare(outcomes(30, 10, 40, 20), usual())
	if v.Tickets != 100 || v.Fixed != 30 || v.Broken != 10 || v.Before != 0.5 || v.After != 0.7 ||
		math.Abs(v.Gain-0.2) > 1e-15 || v.Alpha != 0.05 {
		t.Errorf("the verdict is %+v", v)
	}
	if v.Interval[0] > v.Gain-0.05 || v.Interval[1] < v.Gain+0.05 {
		t.Errorf("the interval %v is not around the gain %v", v.Interval, v.Gain)
	}
	if len(v.Flipped) != 40 || v.Flipped[0] != (Flip{"t1000", 1, 0}) || v.Flipped[10] != (Flip{"t0000", 0, 1}) {
		t.Errorf("%d tickets are listed: %v", len(v.Flipped), v.Flipped)
	}
}

func TestFlippedTicketsAreBounded(t *testing.T) {
	t.Parallel()
	v := Compare(outcomes(90, 30, 0, 0), usual())
	if len(v.Flipped) != MaxFlipped || v.Fixed != 90 || v.Broken != 30 {
		t.Fatalf("%d tickets are listed of %d fixed and %d broken", len(v.Flipped), v.Fixed, v.Broken)
	}
	if v.Flipped[29].Ticket != "t1029" || v.Flipped[30].Ticket != "t0000" {
		t.Errorf("the broken tickets are not first: %v", v.Flipped[25:35])
	}
}

// TestSamplesOfATicket checks what is compared when tickets have several samples, of which
// some failed.
func TestSamplesOfATicket(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, c := range []struct {
		name          string
		before, after []float64
		want          []ticket
		binary        bool
	}{
		{"one sample", []float64{0}, []float64{1}, []ticket{{"t", 0, 1}}, true},
		{"several samples are averaged", []float64{0, 1, 0, 1}, []float64{1, 1, 1, 0}, []ticket{{"t", 0.5, 0.75}}, false},
		{"two samples", []float64{0, 0}, []float64{1, 1}, []ticket{{"t", 0, 1}}, false},
		{"a sample that failed before", []float64{nan, 1}, []float64{1, 0}, []ticket{{"t", 1, 0}}, true},
		{"a sample that failed after", []float64{0, 1}, []float64{1, nan}, []ticket{{"t", 0, 1}}, true},
		{"missing at the end", []float64{0, 1, 1}, []float64{1}, []ticket{{"t", 0, 1}}, true},
		{"graded", []float64{0.5}, []float64{1}, []ticket{{"t", 0.5, 1}}, false},
		{"no common sample", []float64{nan, 1}, []float64{1, nan}, nil, true},
		{"no samples", nil, nil, nil, true},
		{"scores without value", []float64{math.Inf(1), 0, math.MaxFloat64}, []float64{1, math.Inf(-1), 1}, nil, true},
	} {
		got := tabulate([]Pair{{"t", c.before, c.after}})
		if !slices.Equal(got.tickets, c.want) || got.binary != c.binary {
			t.Errorf("%s: %+v, want %+v, binary %v", c.name, got, c.want, c.binary)
		}
	}
}

// TestVerdictsAreJSON checks that extreme scores leave no number that JSON lacks.
func TestVerdictsAreJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		pairs []Pair
	}{
		{"no tickets", nil},
		{"huge", append(tickets(0, 30, -maxScore, maxScore), tickets(30, 10, maxScore, 1)...)},
		{"tiny", tickets(0, 30, 5e-324, 1e-310)},
		{"without value", tickets(0, 30, math.NaN(), math.Inf(1))},
	} {
		v := Compare(c.pairs, usual())
		if _, err := json.Marshal(v); err != nil {
			t.Errorf("%s: %v: %+v", c.name, err, v)
		}
	}
	got, err := json.Marshal(Compare(nil, usual()))
	want := `{"accepted":false,"reason":"too_few","test":"mcnemar","tickets":0,"left_out":0,` +
		`"before":0,"after":0,"gain":0,"interval":[0,0],"p":1,"alpha":0.05,"fixed":0,"broken":0,"flipped":[]}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	better, same := Compare(outcomes(30, 0, 30, 30), usual()), Compare(outcomes(0, 0, 30, 30), usual())
	few := Compare(outcomes(3, 0, 0, 0), usual())
	for _, c := range []struct {
		name               string
		gate, confirmation Verdict
		want               Reason
	}{
		{"it wins twice", better, better, Accepted},
		{"it does not win again", better, same, NotConfirmed},
		{"too few tickets to win again", better, few, NotConfirmed},
		{"it does not win first", same, better, NoGain},
		{"there was nothing to confirm", few, Verdict{}, TooFew},
	} {
		got := Decide(c.gate, c.confirmation)
		if got.Reason != c.want || got.Accepted != (c.want == Accepted) || got.Gain != c.gate.Gain {
			t.Errorf("%s: accepted %v, %s, want %s", c.name, got.Accepted, got.Reason, c.want)
		}
	}
}

func TestRuleCheck(t *testing.T) {
	t.Parallel()
	if err := usual().Check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for _, c := range []struct {
		name   string
		change func(*Rule)
		want   string // the error; "" if the rule is accepted
	}{
		{"alpha 0", func(r *Rule) { r.Alpha = 0 }, "alpha is 0: set a number above 0 and at most 0.5"},
		{"alpha above 1/2", func(r *Rule) { r.Alpha = 0.51 }, "alpha is 0.51: set a number above 0 and at most 0.5"},
		{"no number", func(r *Rule) { r.Alpha = math.NaN() }, "alpha is NaN: set a number above 0 and at most 0.5"},
		{"no candidates", func(r *Rule) { r.Candidates = 0 }, "0 candidates are judged together: set at least 1"},
		{"no resamples", func(r *Rule) { r.Resamples = 0 }, "resamples is 0: set a number from 1 to 1000000"},
		{"too many", func(r *Rule) { r.Resamples = 1e6 + 1 }, "resamples is 1000001: set a number from 1 to 1000000"},
		{"negative number of pairs", func(r *Rule) { r.MinPairs = -1 }, "min_pairs is -1: set 0 or more"},
		{"negative gain", func(r *Rule) { r.MinGain = -0.1 }, "min_gain is -0.1: set 0 or more"},
		{"unbounded gain", func(r *Rule) { r.MinGain = math.Inf(1) }, "min_gain is +Inf: set 0 or more"},
		{"a share above 1", func(r *Rule) { r.MaxBroken = 1.1 }, "max_broken is 1.1: set a share from 0 to 1"},
		{"as few resamples as can accept", func(r *Rule) { r.Resamples = 19 }, ""},
		{"fewer", func(r *Rule) { r.Resamples = 18 },
			"with 18 resamples no candidate can be accepted at an alpha of 0.05 for each of 1: set resamples to at least 19"},
		{"more candidates than resamples tell apart", func(r *Rule) { r.Candidates = 101 },
			"with 2000 resamples no candidate can be accepted at an alpha of 0.05 for each of 101: " +
				"set resamples to at least 2019"},
		{"two problems", func(r *Rule) { r.Alpha, r.MinPairs = 1, -1 },
			"alpha is 1: set a number above 0 and at most 0.5\nmin_pairs is -1: set 0 or more"},
	} {
		r := usual()
		c.change(&r)
		err := r.Check()
		switch {
		case err == nil && c.want == "":
		case err == nil || err.Error() != c.want || !fault.Is(err, fault.Invalid):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestMinTickets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		alpha                      float64
		candidates, minPairs, want int
	}{{0.05, 1, 0, 5}, {0.05, 4, 0, 7}, {0.5, 1, 0, 1}, {0.05, 1, 20, 20}, {0.0005, 1, 0, 11}, {1e-300, 1, 0, 20}} {
		r := usual()
		r.Alpha, r.Candidates, r.MinPairs = c.alpha, c.candidates, c.minPairs
		if got := r.MinTickets(); got != c.want {
			t.Errorf("alpha %v for each of %d candidates needs %d tickets, want %d", c.alpha, c.candidates, got, c.want)
		}
	}
}
