package gate

import (
	"errors"
	"math"

	"rollout/shared/fault"
)

// Rule says what a candidate must show. Compare expects a rule that Check accepts.
type Rule struct {
	// Alpha is the probability, above 0 and at most 0.5, of accepting one or more of the
	// Candidates although none makes a difference.
	Alpha float64
	// Candidates is how many candidates are judged against the same guidance at once. Each
	// is judged at Alpha / Candidates (Bonferroni's correction).
	Candidates int
	// Resamples is how many random samples the randomisation test and the bootstrap draw.
	Resamples int
	// Seed makes the samples reproducible.
	Seed uint64

	// MinPairs is how many tickets must be comparable. A loss on one ticket in ten is among
	// 20 tickets in 88 % of all cases, and among 10 tickets in 65 %. MinTickets tells whether
	// the test itself needs more.
	MinPairs int
	// MinGain is what the mean score must rise by more than.
	MinGain float64
	// MaxBroken is the largest share of the compared tickets, from 0 to 1, that may be
	// right before and wrong after. A ticket is right if the mean of its scores is at least
	// 0.5. Where answers are sampled with other seeds, or by an engine that does not follow
	// seeds, chance alone breaks a share of accuracy before × error rate after.
	MaxBroken float64
}

// maxResamples bounds the time that a comparison takes.
const maxResamples = 1_000_000

// maxMinTickets bounds what the test needs: with maxResamples, no P is below 2^-20.
const maxMinTickets = 20

// Check returns all problems of the rule as one Invalid error, or nil.
func (r Rule) Check() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fault.New(fault.Invalid, format, args...))
		}
	}
	refuse(!(r.Alpha > 0 && r.Alpha <= 0.5), "alpha is %v: set a number above 0 and at most 0.5", r.Alpha)
	refuse(r.Candidates < 1, "%d candidates are judged together: set at least 1", r.Candidates)
	refuse(r.Resamples < 1 || r.Resamples > maxResamples,
		"resamples is %d: set a number from 1 to %d", r.Resamples, maxResamples)
	refuse(r.MinPairs < 0, "min_pairs is %d: set 0 or more", r.MinPairs)
	refuse(!(r.MinGain >= 0 && r.MinGain <= maxScore), "min_gain is %v: set 0 or more", r.MinGain)
	refuse(!(r.MaxBroken >= 0 && r.MaxBroken <= 1), "max_broken is %v: set a share from 0 to 1", r.MaxBroken)
	if len(problems) == 0 {
		// A randomisation test's smallest P is 1 / (resamples + 1).
		refuse(float64(r.Resamples+1)*r.alpha() < 1,
			"with %d resamples no candidate can be accepted at an alpha of %v for each of %d: set resamples to at least %v",
			r.Resamples, r.Alpha, r.Candidates, math.Ceil(1/r.alpha())-1)
	}
	return errors.Join(problems...)
}

// alpha returns the level at which one candidate is judged.
func (r Rule) alpha() float64 { return r.Alpha / float64(r.Candidates) }

// MinTickets returns how many comparable tickets the rule needs. With fewer than
// log2(Candidates / Alpha) tickets, even a candidate that improves every one of them is
// not told from chance.
func (r Rule) MinTickets() int {
	n := 0
	for p := 1.0; p > r.alpha() && n < maxMinTickets; p /= 2 {
		n++
	}
	return max(n, r.MinPairs)
}
