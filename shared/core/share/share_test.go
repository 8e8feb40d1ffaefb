package share

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/identity"
)

func at(s int) time.Time { return time.Unix(int64(10_000+s), 0) }

func TestDeadlineRaisesWeightInItsLastQuarter(t *testing.T) {
	t.Parallel()
	r := Run{Weight: 4, Created: at(0), Deadline: at(4000)}
	for _, c := range []struct {
		at   int
		want float64
	}{
		{-100, 4}, {0, 4}, {3000, 4}, {3500, 8}, {3750, 16}, {3875, 32}, {3990, 32}, {4000, 32}, {9999, 32},
	} {
		if got := r.WeightAt(at(c.at)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("after %d s the weight is %v, want %v", c.at, got, c.want)
		}
	}
	if got := (Run{Weight: 4, Created: at(0)}).WeightAt(at(1 << 30)); got != 4 {
		t.Errorf("without a deadline the weight is %v", got)
	}
}

func TestDocListsRunsByID(t *testing.T) {
	t.Parallel()
	var d Doc
	for _, id := range []identity.RunID{"b", "c", "a"} {
		next, changed := d.With(Run{Run: id, Weight: 2})
		if !changed {
			t.Fatalf("%s is not new", id)
		}
		d = next
	}
	if _, changed := d.With(Run{Run: "b", Weight: 2}); changed {
		t.Error("the same entry changes the document")
	}
	heavier, changed := d.With(Run{Run: "b", Weight: 4})
	if r, _ := heavier.Find("b"); !changed || r.Weight != 4 {
		t.Errorf("b is %v", r)
	}
	if r, _ := d.Find("b"); r.Weight != 2 {
		t.Error("With changed its receiver")
	}
	if got := heavier.Fraction(Run{Run: "b", Weight: 4}, at(0)); got != 0.5 {
		t.Errorf("the fraction of b is %v", got)
	}
	if got := d.Fraction(Run{Run: "new", Weight: 6}, at(0)); got != 0.5 {
		t.Errorf("the fraction of a run that is not listed is %v", got)
	}
	for _, id := range []identity.RunID{"a", "c"} {
		d, _ = d.Without(id)
	}
	if _, changed := d.Without("a"); changed || len(d.Runs) != 1 || d.Others("b") || !d.Others("a") {
		t.Errorf("left: %+v", d.Runs)
	}
	if got := d.Fraction(Run{Run: "b", Weight: 2}, at(0)); got != 1 {
		t.Errorf("alone the fraction is %v", got)
	}
}

func TestDocIsBounded(t *testing.T) {
	t.Parallel()
	var d Doc
	for i := range MaxRuns + 5 {
		d, _ = d.With(Run{Run: identity.RunID(rune('a'+i/200)) + identity.RunID(rune('a'+i%200)), Weight: 1})
	}
	if len(d.Runs) != MaxRuns {
		t.Errorf("%d runs are listed", len(d.Runs))
	}
}

// flow is a run of the simulated engine.
type flow struct {
	id     identity.RunID
	weight float64
	served int
}

func drawFlows(t *rapid.T) []*flow {
	flows := make([]*flow, rapid.IntRange(2, 12).Draw(t, "runs"))
	for i := range flows {
		flows[i] = &flow{id: identity.RunID(rune('a' + i)), weight: rapid.Float64Range(1, 800).Draw(t, "weight")}
	}
	return flows
}

// next returns the flow of those that wait whose turn it is, and counts its request.
func next(turns *Turns, flows []*flow, waits func(*flow) bool) *flow {
	var best *flow
	for _, f := range flows {
		if waits(f) && (best == nil || turns.Start(f.id, f.weight) < turns.Start(best.id, best.weight)) {
			best = f
		}
	}
	if best != nil {
		turns.Begin(best.id, best.weight)
		best.served++
	}
	return best
}

// The exact share of a run is its weight's part of all requests. Of runs that always wait,
// any two are at any time within one request of each of it.
func TestTurnsKeepToTheExactShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		flows, turns := drawFlows(t), &Turns{}
		for range rapid.IntRange(1, 2000).Draw(t, "requests") {
			next(turns, flows, func(*flow) bool { return true })
			for _, a := range flows {
				for _, b := range flows {
					apart := float64(a.served)/a.weight - float64(b.served)/b.weight
					if apart > 1/a.weight+1/b.weight+1e-9 {
						t.Fatalf("%s has %d requests of weight %v, %s %d of %v", a.id, a.served, a.weight, b.id, b.served, b.weight)
					}
				}
			}
		}
	})
}

// Runs come and go as they like. One that waits begins a request before the others have
// begun more than their weights allow, their credit included.
func TestNoRunThatWaitsStarves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		flows, turns := drawFlows(t), &Turns{}
		patient := flows[0]
		waited, bound := 0, 0.0
		for _, f := range flows[1:] {
			bound += f.weight/patient.weight + Credit + 2
		}
		away := rapid.SliceOfN(rapid.IntRange(0, 1<<len(flows)-1), 1, 50).Draw(t, "away")
		for step := range rapid.IntRange(1, 5000).Draw(t, "requests") {
			absent := away[step%len(away)]
			f := next(turns, flows, func(f *flow) bool {
				return f == patient || absent&(1<<slices.Index(flows, f)) == 0
			})
			if waited++; f == patient {
				waited = 0
			}
			if float64(waited) > bound {
				t.Fatalf("a run of weight %v waited for %d requests, more than %.0f", patient.weight, waited, bound)
			}
		}
	})
}

// A run that was away makes up for Credit requests at most.
func TestRunCatchesUpWithBoundedCredit(t *testing.T) {
	t.Parallel()
	a, b, turns := &flow{id: "a", weight: 1}, &flow{id: "b", weight: 1}, &Turns{}
	flows := []*flow{a, b}
	next(turns, flows, func(f *flow) bool { return f == b })
	for range 10_000 {
		next(turns, flows, func(f *flow) bool { return f == a })
	}
	in := 0
	for next(turns, flows, func(*flow) bool { return true }) == b {
		in++
	}
	if in < Credit-1 || in > Credit+1 {
		t.Errorf("a run that was away began %d requests in a row", in)
	}
}

func TestTurnsForgetRuns(t *testing.T) {
	t.Parallel()
	turns := &Turns{}
	for i := range 20 * maxFinished {
		turns.Begin(identity.RunID(rune('a'+i)), 1)
	}
	if n := len(turns.finished); n > maxFinished {
		t.Errorf("%d runs are remembered", n)
	}
}

// A request that was counted and does not begin costs its run no turn.
func TestCancelledRequestCostsNoTurn(t *testing.T) {
	t.Parallel()
	var turns Turns
	turns.Begin("a", 1)
	turns.Begin("b", 1)
	before := turns.Start("a", 1)
	turns.Begin("a", 1)
	turns.Cancel("a", 1)
	if got := turns.Start("a", 1); got != before {
		t.Errorf("the next request of the run starts at %v, want %v", got, before)
	}
	turns.Cancel("unknown", 1)
}
