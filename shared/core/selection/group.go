package selection

import (
	"cmp"
	"math"
	"slices"
)

// Unparsable is the Cause of a member whose answer did not have the form that was asked
// for. That is an outcome of the model. All other causes are failures of the request.
const Unparsable = "unparsable"

// Group is a ticket with its members.
type Group struct {
	Ticket  string // the ticket's key
	Label   string // the known answer, normalised as answers are; "" if there is none
	Members []Member
}

// Member is one answer to a ticket. Decode and Sample name it within the group.
type Member struct {
	Decode int // ordinal in the decode grid
	Sample int // ordinal among the samples of that decode

	Answer string // parsed and normalised; "" if Cause is set
	Cause  string // why there is no answer: Unparsable or a class of failures; "" with an answer

	Score  float64 // valid if Scored
	Scored bool
}

// maxScore bounds scores, so that no sum of them overflows.
const maxScore = 1e100

// score returns the member's score, and false if it has none. A score that is not a number
// or is beyond ±maxScore counts as missing: statistics with it would have no value. Adding 0
// turns -0 into 0, so that equal scores are written alike.
func (m Member) score() (float64, bool) {
	return m.Score + 0, m.Scored && math.Abs(m.Score) <= maxScore
}

// answered reports whether the member has an answer.
func (m Member) answered() bool { return m.Cause == "" }

// scores returns the scores of the members that have one, in ascending order, so that
// sums over them do not depend on the order of the members.
func (g Group) scores() []float64 {
	out := make([]float64, 0, len(g.Members))
	for _, m := range g.Members {
		if s, ok := m.score(); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// differ reports whether sorted scores are not all equal.
func differ(scores []float64) bool {
	return len(scores) > 0 && scores[0] != scores[len(scores)-1]
}

// compareNames orders members by decode, then by sample.
func compareNames(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Decode, b.Decode), cmp.Compare(a.Sample, b.Sample))
}
