package gate

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestSumsOfDifferencesFit checks that no number of tickets makes a sum overflow.
func TestSumsOfDifferencesFit(t *testing.T) {
	t.Parallel()
	for size := range 40 {
		n := 1<<size + 1
		if sum := float64(n) * math.Ldexp(2, unitBits(n)); sum >= math.MaxInt64 {
			t.Errorf("the sum of %d differences may be %v", n, sum)
		}
	}
}

// TestScoresTooSmallForAUnitAreEqual checks that the unit never becomes 0.
func TestScoresTooSmallForAUnitAreEqual(t *testing.T) {
	t.Parallel()
	if d := tabulate(tickets(0, 1, 0, math.SmallestNonzeroFloat64)).differences(); d.unit == 0 || d.all[0] != 0 {
		t.Errorf("the differences are %+v", d)
	}
}

func TestMcNemar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fixed, broken int
		want          float64
	}{
		{0, 0, 1},
		{0, 5, 1},
		{1, 0, 0.5},
		{5, 0, 1.0 / 32},
		{4, 1, 6.0 / 32},
		{2, 2, 11.0 / 16},
		{1, 4, 31.0 / 32},
		{1000, 0, math.Ldexp(1, -1000)},
	} {
		if got := mcnemar(c.fixed, c.broken); got != c.want {
			t.Errorf("%d fixed and %d broken: P is %v, want %v", c.fixed, c.broken, got, c.want)
		}
	}
}

// exactRandomisation is randomisation by all sign patterns, in rational numbers.
func exactRandomisation(numerators []int64) float64 {
	total, asMuch := int64(0), int64(0)
	for _, x := range numerators {
		total += x
	}
	patterns := int64(1) << len(numerators)
	for p := range patterns {
		sum := int64(0)
		for i, x := range numerators {
			if p>>i&1 == 1 {
				x = -x
			}
			sum += x
		}
		if sum >= total {
			asMuch++
		}
	}
	return float64(asMuch) / float64(patterns)
}

// changes returns pairs of graded scores whose differences are the numerators over 30.
func changes(numerators []int64) []Pair {
	out := tickets(0, len(numerators), 0, 0)
	for i, x := range numerators {
		out[i].Before[0], out[i].After[0] = 0.1, (3+float64(x))/30
	}
	return out
}

var numerators = rapid.SliceOfN(rapid.Int64Range(-6, 9), 1, 12)

// TestRandomisationCountsAllPatterns checks P against rational numbers. Thirtieths have no
// exact floating point number, and their sums have many ties.
func TestRandomisationCountsAllPatterns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		xs := numerators.Draw(t, "differences")
		d := tabulate(changes(xs)).differences()
		if got, want := randomisation(d, 4096, 1), exactRandomisation(xs); got != want {
			t.Fatalf("P of %v is %v, want %v", xs, got, want)
		}
	})
}

// TestSampledRandomisationApproachesAllPatterns checks the random patterns, which are used
// when there are too many.
func TestSampledRandomisationApproachesAllPatterns(t *testing.T) {
	t.Parallel()
	xs := []int64{5, -3, 9, 1, 1, -6, 2, 8, 3, -1, -2, 4}
	d := tabulate(changes(xs)).differences()
	const resamples = 4000
	got, want := randomisation(d, resamples, 7), exactRandomisation(xs)
	if math.Abs(got-want) > 4*math.Sqrt(want/resamples) || got == want {
		t.Errorf("P is %v, want about %v", got, want)
	}
	if other := randomisation(d, resamples, 8); other == got {
		t.Errorf("another seed gives the same P %v", got)
	}
}

// TestRandomisationOfBinaryScoresIsMcNemarsTest checks two tests against each other.
func TestRandomisationOfBinaryScoresIsMcNemarsTest(t *testing.T) {
	t.Parallel()
	for fixed := range 6 {
		for broken := range 6 {
			d := tabulate(outcomes(fixed, broken, 3, 3)).differences()
			if got, want := randomisation(d, 2000, 1), mcnemar(fixed, broken); got != want {
				t.Errorf("%d fixed and %d broken: P is %v, want %v", fixed, broken, got, want)
			}
		}
	}
}

// TestBootstrapDrawsTicketsWithReplacement compares the interval with the normal
// distribution, which it approaches with many tickets.
func TestBootstrapDrawsTicketsWithReplacement(t *testing.T) {
	t.Parallel()
	d := tabulate(outcomes(150, 50, 100, 100)).differences()
	got := bootstrap(d, 0.05, 4000, 3)
	half := 1.6449 * math.Sqrt((0.5-0.25*0.25)/400) // variance of the differences: E d² − (E d)²
	for i, want := range []float64{0.25 - half, 0.25 + half} {
		if math.Abs(got[i]-want) > 0.004 {
			t.Errorf("end %d of the interval is %v, want about %v", i, got[i], want)
		}
	}
}
