package selection

import (
	"cmp"
	"slices"
	"strings"
)

// Selection is what a policy selected of a group.
type Selection struct {
	Member    int    // index in Group.Members; -1 if no member has an answer
	Answer    string // of that member; "" without one
	Agreement float64
	// Votes has the distinct answers with the number of their members: most votes first,
	// then by text.
	Votes []Vote
	// LabelMatch says whether Answer equals the label; nil without a label or an answer.
	LabelMatch *bool
	Teaches    Lesson
	Review     Review
}

// Vote is an answer and how many members gave it.
type Vote struct {
	Answer string `json:"answer"`
	Count  int    `json:"count"`
}

// Lesson says why reflection can learn from a ticket. The first that applies is named.
type Lesson string

// The lessons.
const (
	NoLesson      Lesson = ""
	LabelMismatch Lesson = "label_mismatch" // the selected answer differs from the label
	Conflict      Lesson = "conflict"       // several answers share the most votes
	Mixed         Lesson = "mixed"          // some members are right or score better than others
)

// Review says why a person should look at a ticket. The first that applies is named.
type Review string

// The reasons for a review.
const (
	NoReview Review = ""
	NoAnswer Review = "no_answer" // no member has an answer
	// UnexplainedMismatch: at least two members have an answer, all gave the same one, and
	// the label is another. Either all are wrong in the same way, or the label is wrong.
	UnexplainedMismatch Review = "label_mismatch_unexplained"
	LowAgreement        Review = "low_agreement" // Agreement is below the threshold
)

// ballot is a group's votes.
type ballot struct {
	label string
	votes map[string]int // members by answer
	total int            // members with an answer
}

func count(g Group) ballot {
	b := ballot{label: g.Label, votes: map[string]int{}}
	for _, m := range g.Members {
		if m.answered() {
			b.votes[m.Answer]++
			b.total++
		}
	}
	return b
}

// sorted returns the votes, most first, then by text.
func (b ballot) sorted() []Vote {
	out := make([]Vote, 0, len(b.votes))
	for answer, n := range b.votes {
		out = append(out, Vote{answer, n})
	}
	slices.SortFunc(out, func(x, y Vote) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Answer, y.Answer))
	})
	return out
}

// Select selects a member of the group. Agreement is the share of the members with an
// answer that gave the answer with the most votes, whichever is selected; below
// minAgreement, from 0 to 1, the ticket is to be reviewed.
func (p Policy) Select(g Group, minAgreement float64) Selection {
	b := count(g)
	s := Selection{Member: -1, Votes: b.sorted(), Teaches: lessonOfOutcomes(g)}
	if b.total == 0 {
		s.Review = NoAnswer
		return s
	}
	for i, m := range g.Members {
		if m.answered() && (s.Member < 0 || p.compare(b, m, g.Members[s.Member]) > 0) {
			s.Member = i
		}
	}
	s.Answer = g.Members[s.Member].Answer
	s.Agreement = float64(s.Votes[0].Count) / float64(b.total)
	if g.Label != "" {
		match := s.Answer == g.Label
		s.LabelMatch = &match
	}
	mismatch := s.LabelMatch != nil && !*s.LabelMatch
	switch {
	case mismatch:
		s.Teaches = LabelMismatch
	case len(s.Votes) > 1 && s.Votes[0].Count == s.Votes[1].Count:
		s.Teaches = Conflict
	}
	switch {
	case mismatch && len(s.Votes) == 1 && b.total > 1:
		s.Review = UnexplainedMismatch
	case s.Agreement < minAgreement:
		s.Review = LowAgreement
	}
	return s
}

// lessonOfOutcomes returns Mixed if scores differ, or if some members answered the label
// and others did not. An unparsable answer misses the label; a failed request is neither.
func lessonOfOutcomes(g Group) Lesson {
	if differ(g.scores()) {
		return Mixed
	}
	hits, misses := 0, 0
	for _, m := range g.Members {
		switch {
		case g.Label == "":
		case m.answered() && m.Answer == g.Label:
			hits++
		case m.answered(), m.Cause == Unparsable:
			misses++
		}
	}
	if hits > 0 && misses > 0 {
		return Mixed
	}
	return NoLesson
}
