package gate

// Verdict is the outcome of a comparison.
type Verdict struct {
	Accepted bool   `json:"accepted"`
	Reason   Reason `json:"reason"`
	Test     Test   `json:"test"`
	Tickets  int    `json:"tickets"`  // that could be compared
	LeftOut  int    `json:"left_out"` // tickets without a sample that has both scores

	Before float64 `json:"before"` // mean score of the current guidance
	After  float64 `json:"after"`  // mean score of the candidate, on the same samples
	Gain   float64 `json:"gain"`   // the mean of the tickets' differences
	// Interval contains the gain with a confidence of 1 − 2 × Alpha, by a paired bootstrap
	// over tickets. Both ends are 0 without tickets.
	Interval [2]float64 `json:"interval"`
	// P is the probability of at least such a gain if the candidate makes no difference.
	P     float64 `json:"p"`
	Alpha float64 `json:"alpha"` // what P must not exceed: the rule's, divided by its candidates

	Fixed  int `json:"fixed"`  // tickets that are wrong before and right after
	Broken int `json:"broken"` // tickets that are right before and wrong after
	// Flipped has these tickets, at most MaxFlipped: the broken ones first, then by key.
	Flipped []Flip `json:"flipped"`
}

// Flip is a ticket that was right before and is wrong after, or the other way round.
type Flip struct {
	Ticket string  `json:"ticket"`
	Before float64 `json:"before"` // mean score
	After  float64 `json:"after"`
}

// MaxFlipped bounds Verdict.Flipped.
const MaxFlipped = 100

// Reason says why a candidate is accepted or not.
type Reason string

// The reasons. Compare names the first that applies, in this order.
const (
	TooFew         Reason = "too_few"         // fewer comparable tickets than Rule.MinTickets
	NoGain         Reason = "no_gain"         // the gain is not above Rule.MinGain
	NotSignificant Reason = "not_significant" // chance explains the gain
	BreaksTooMany  Reason = "breaks_too_many" // the share of broken tickets is above Rule.MaxBroken
	NotConfirmed   Reason = "not_confirmed"   // accepted by the gate, not on the disjoint tickets
	Accepted       Reason = "accepted"
)

// Test names how chance was judged.
type Test string

// The tests.
const (
	// McNemar: every ticket has one score of 0 or 1 before and after. P is that of
	// McNemar's exact one-sided test.
	McNemar Test = "mcnemar"
	// Bootstrap: P is that of a paired randomisation test. The gain must also hold in the
	// paired bootstrap: Interval must be above 0.
	Bootstrap Test = "bootstrap"
)

// Compare judges a candidate by the pairs of its scores and the current guidance's. The
// order of the pairs changes nothing.
func Compare(pairs []Pair, rule Rule) Verdict {
	t := tabulate(pairs)
	v := Verdict{Test: Bootstrap, Tickets: len(t.tickets), P: 1, Alpha: rule.alpha()}
	v.LeftOut = len(pairs) - v.Tickets
	v.Before, v.After, v.Gain = t.means()
	v.flips(t)
	d := t.differences()
	if len(d.all) > 0 {
		v.Interval = bootstrap(d, v.Alpha, rule.Resamples, rule.Seed)
	}
	if t.binary {
		v.Test, v.P = McNemar, mcnemar(v.Fixed, v.Broken)
	} else {
		v.P = randomisation(d, rule.Resamples, rule.Seed)
	}
	v.Reason = v.judge(rule)
	v.Accepted = v.Reason == Accepted
	return v
}

// judge returns the first reason that applies.
func (v Verdict) judge(rule Rule) Reason {
	switch {
	case v.Tickets < rule.MinTickets():
		return TooFew
	case v.Gain <= rule.MinGain:
		return NoGain
	case v.P > v.Alpha, v.Test == Bootstrap && v.Interval[0] <= 0:
		return NotSignificant
	case float64(v.Broken) > rule.MaxBroken*float64(v.Tickets):
		return BreaksTooMany
	}
	return Accepted
}

// flips counts and lists the tickets that changed between right and wrong.
func (v *Verdict) flips(t table) {
	list := func(changed func(ticket) bool) (n int) {
		for _, x := range t.tickets {
			if !changed(x) {
				continue
			}
			n++
			if len(v.Flipped) < MaxFlipped {
				v.Flipped = append(v.Flipped, Flip{x.key, x.before, x.after})
			}
		}
		return n
	}
	v.Flipped = []Flip{}
	v.Broken = list(ticket.broken)
	v.Fixed = list(ticket.fixed)
}

// Decide returns the gate's verdict of a candidate, not accepted unless the confirmation
// is: the verdict on tickets that are disjoint from the gate's, and that no reflection has
// seen.
//
// Judge the confirmation at the full Alpha, with Candidates 1 if only the gate's best
// candidate is confirmed. The two tests hold Alpha against different errors. A candidate
// that makes no difference passes the gate with a probability of Alpha, and both with
// Alpha², as the tickets are independent. A candidate that only knows the gate's tickets,
// because it was chosen by them or copies them, passes the gate for certain: against it
// only the confirmation stands. So the confirmation may not have a weaker level, and the
// probability of a false acceptance is at most Alpha in both cases.
func Decide(gate, confirmation Verdict) Verdict {
	if gate.Accepted && !confirmation.Accepted {
		gate.Accepted, gate.Reason = false, NotConfirmed
	}
	return gate
}
