package selection

import (
	"cmp"
	"math"
)

// Policy is a rule that selects a member of a group. Of returns policies; the zero value
// selects the first member with an answer.
type Policy struct {
	Name string // as configs name it
	// criteria rank the members with an answer: the first one by which two members differ
	// decides, and more is better. Members that are equal by all rank by decode and sample.
	criteria []criterion
}

// criterion is a property of a member by which policies rank.
type criterion func(b ballot, m Member) float64

// policies returns all policies. Ties that the criteria leave go to the lower decode and
// sample.
func policies() []Policy {
	return []Policy{
		// Of the answer that most members gave, or of several with as many, the member with
		// the best score.
		{"vote_strength", []criterion{byVotes, byScore}},
		// Of the members whose answer equals the label the one with the best score; without
		// such a member or a label as vote_strength.
		{"label_match", []criterion{byLabel, byVotes, byScore}},
		// The member with the best score, and of equal ones one whose answer more members gave.
		{"best_score", []criterion{byScore, byVotes}},
	}
}

// Of returns the policy with the name, and false if there is none.
func Of(name string) (Policy, bool) {
	for _, p := range policies() {
		if p.Name == name {
			return p, true
		}
	}
	return Policy{}, false
}

func byVotes(b ballot, m Member) float64 { return float64(b.votes[m.Answer]) }

// byScore ranks members without a score behind all others.
func byScore(_ ballot, m Member) float64 {
	if s, ok := m.score(); ok {
		return s
	}
	return math.Inf(-1)
}

func byLabel(b ballot, m Member) float64 {
	if b.label != "" && m.Answer == b.label {
		return 1
	}
	return 0
}

// compare returns a positive number if x is to be selected before y.
func (p Policy) compare(b ballot, x, y Member) int {
	for _, value := range p.criteria {
		if c := cmp.Compare(value(b, x), value(b, y)); c != 0 {
			return c
		}
	}
	return compareNames(y, x)
}
