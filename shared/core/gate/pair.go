package gate

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Pair is the scores of a ticket under the current guidance and under a candidate. Each
// ticket has one Pair.
type Pair struct {
	Ticket string // its key
	// Before and After have the scores of the same samples, which were drawn with the same
	// seeds, in the same order. A sample counts only if it has both scores: one without is
	// NaN, or missing at the end.
	//
	// Leave out only what no guidance can cause, such as a server's fault. What guidance can
	// cause, an answer that can't be parsed or a prompt that is too long or refused, scores
	// 0. Otherwise a candidate gains by failing on hard tickets.
	Before, After []float64
}

// maxScore bounds scores, so that no sum of them overflows. A score beyond ±maxScore, or
// one that is no number, counts as missing.
const maxScore = 1e100

// rightFrom is the mean score from which on a ticket counts as right.
const rightFrom = 0.5

// ticket is a comparable ticket with the mean scores of its common samples.
type ticket struct {
	key           string
	before, after float64
}

func (t ticket) fixed() bool  { return t.before < rightFrom && t.after >= rightFrom }
func (t ticket) broken() bool { return t.before >= rightFrom && t.after < rightFrom }

// table is what the tests see of the pairs.
type table struct {
	tickets []ticket // in the order of their keys
	binary  bool     // every ticket has one sample, and every score is 0 or 1
}

// tabulate averages the samples of each ticket. A ticket without a common sample is left
// out. The samples of a ticket stay together from here on, so that asking the same ticket
// often does not look like evidence from many tickets.
func tabulate(pairs []Pair) table {
	t := table{tickets: make([]ticket, 0, len(pairs)), binary: true}
	for _, p := range pairs {
		before, after, n := 0.0, 0.0, 0
		for i := range min(len(p.Before), len(p.After)) {
			b, a := p.Before[i], p.After[i]
			if !(math.Abs(b) <= maxScore && math.Abs(a) <= maxScore) {
				continue
			}
			before, after, n = before+b, after+a, n+1
			t.binary = t.binary && (b == 0 || b == 1) && (a == 0 || a == 1)
		}
		if n > 0 {
			t.tickets = append(t.tickets, ticket{p.Ticket, before / float64(n), after / float64(n)})
		}
		t.binary = t.binary && n <= 1
	}
	slices.SortStableFunc(t.tickets, func(a, b ticket) int { return cmp.Compare(a.key, b.key) })
	return t
}

// means returns the mean scores over the tickets, each of which counts equally, and the
// mean of the differences.
func (t table) means() (before, after, gain float64) {
	for _, x := range t.tickets {
		before += x.before
		after += x.after
		gain += x.after - x.before
	}
	n := float64(max(1, len(t.tickets)))
	return before / n, after / n, gain / n
}

// differences are the tickets' changes as whole multiples of a unit. Their sums are exact,
// so that resamples with equal gains are equal.
type differences struct {
	all  []int64
	unit float64 // the value of 1
}

// smallestScale keeps the unit above 0 when all scores are extremely small.
const smallestScale = 1e-200

// maxUnitBits is the size of the largest score in units, as a power of 2. The scores have
// 53 bits: the other 13 are for the rounding errors of means.
const maxUnitBits = 40

// unitBits returns the size of the largest score in units for n tickets. A difference is
// at most twice as large, and any sum of n of them fits in 63 bits.
func unitBits(n int) int { return min(maxUnitBits, 61-bits.Len(uint(n))) }

// differences returns the tickets' differences.
func (t table) differences() differences {
	largest := smallestScale
	for _, x := range t.tickets {
		largest = max(largest, math.Abs(x.before), math.Abs(x.after))
	}
	_, exponent := math.Frexp(largest)
	d := differences{
		all:  make([]int64, len(t.tickets)),
		unit: math.Ldexp(1, exponent-unitBits(len(t.tickets))),
	}
	for i, x := range t.tickets {
		d.all[i] = int64(math.RoundToEven((x.after - x.before) / d.unit))
	}
	return d
}
