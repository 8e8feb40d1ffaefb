package statistics

import "math"

// Paired compares the scores of the same items under two settings, as they come: it keeps
// sums alone. The zero value has no item.
type Paired struct {
	items      int
	up, down   int // items whose score is higher, and lower, under the second setting
	other      bool
	mean       float64 // of second − first
	deviations float64 // sum of squared deviations from mean
}

// Difference is what a comparison shows. Values that need more items are NaN, and so are
// Interval and Detectable if all items differ by the same.
type Difference struct {
	Items    int
	Up, Down int     // items whose score is higher, and lower, under the second setting
	Mean     float64 // of second − first
	Interval [2]float64
	// P is the probability of a difference at least that large in either direction if the
	// settings make none.
	P    float64
	Test Test
	// Detectable is the least true difference that a sample of so many items that vary as
	// these do shows in four of five cases, as P at most 1 − confidence.
	Detectable float64
}

// Test says how a P was computed.
type Test string

// The tests.
const (
	TestMcNemar Test = "mcnemar" // exact; all scores are 0 or 1
	TestStudent Test = "student" // the paired t-test
)

// power is the probability with which Difference.Detectable is seen.
const power = 0.8

// Add adds an item with its scores, which must be finite.
func (p *Paired) Add(first, second float64) {
	p.items++
	switch {
	case second > first:
		p.up++
	case second < first:
		p.down++
	}
	p.other = p.other || !isBinary(first) || !isBinary(second)
	// Welford's recurrence (1962): sums of squares would cancel.
	d := second - first
	off := d - p.mean
	p.mean += off / float64(p.items)
	p.deviations += off * (d - p.mean)
}

func isBinary(x float64) bool { return x == 0 || x == 1 }

// Difference returns the comparison of all items so far. Interval contains the true mean
// difference with that confidence, such as 0.95.
func (p *Paired) Difference(confidence float64) Difference {
	nan := math.NaN()
	d := Difference{Items: p.items, Up: p.up, Down: p.down, Mean: nan, Interval: [2]float64{nan, nan}, P: nan,
		Test: TestMcNemar, Detectable: nan}
	if p.items == 0 {
		return d
	}
	d.Mean, d.P = p.mean, McNemar(p.up, p.down)
	if p.other {
		d.Test, d.P = TestStudent, nan
	}
	if p.items < 2 {
		return d
	}
	n := float64(p.items)
	deviation := math.Sqrt(p.deviations / (n - 1) / n)
	if deviation <= rounding*math.Abs(p.mean) { // they differ by the same: only how often says something
		d.P = McNemar(p.up, p.down)
		return d
	}
	t := student(n - 1)
	quantile := t.Quantile((1 + confidence) / 2)
	d.Interval = [2]float64{p.mean - quantile*deviation, p.mean + quantile*deviation}
	d.Detectable = (quantile + t.Quantile(power)) * deviation
	if p.other {
		d.P = 2 * t.Survival(math.Abs(p.mean)/deviation)
	} else { // a difference of shares
		d.Interval = [2]float64{max(-1, d.Interval[0]), min(1, d.Interval[1])}
	}
	return d
}

// rounding is the part of a mean difference below which its standard error is that of
// rounding, such as of 0.4−0.1 and 0.5−0.2.
const rounding = 1e-9
