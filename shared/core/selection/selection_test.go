package selection

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// parseGroup reads a group from text: the label or "-", then its members, in the order of
// their samples. A member is an answer, or "!" and the cause why there is none; then
// optionally "=" and its score.
func parseGroup(t *testing.T, text string) Group {
	t.Helper()
	fields := strings.Fields(text)
	g := Group{Ticket: "t", Label: strings.Trim(fields[0], "-")}
	for i, f := range fields[1:] {
		m := Member{Sample: i}
		answer, score, scored := strings.Cut(f, "=")
		if scored {
			m.Scored = true
			var err error
			if m.Score, err = strconv.ParseFloat(score, 64); err != nil {
				t.Fatal(err)
			}
		}
		if cause, failed := strings.CutPrefix(answer, "!"); failed {
			m.Cause = cause
		} else {
			m.Answer = answer
		}
		g.Members = append(g.Members, m)
	}
	return g
}

func policy(t *testing.T, name string) Policy {
	t.Helper()
	p, ok := Of(name)
	if !ok {
		t.Fatalf("there is no policy %s", name)
	}
	return p
}

func TestPoliciesSelect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, group        string
		vote, label, score int // the selected members
	}{
		{"no members", "A", -1, -1, -1},
		{"no member has an answer", "A !unparsable=0 !engine", -1, -1, -1},
		{"one member", "- B", 0, 0, 0},
		{"failed members are passed over", "- !engine B", 1, 1, 1},
		{"the majority against a better score", "- B=0.9 A=0.1 A=0.2", 2, 2, 0},
		{"the best score of the majority", "- A=0.1 A=0.7 A=0.3 B=0.2", 1, 1, 1},
		{"the first of equal scores", "- B A=0.5 A=0.5", 1, 1, 1},
		{"no scores", "- B A A", 1, 1, 1},
		{"a tie of votes goes to the better score", "- A=0.1 B=0.2 A=0.3 B=0.4", 3, 3, 3},
		{"a tie of votes and scores goes to the first", "- B=1 A=1 A=1 B=1", 0, 0, 0},
		{"the label against the majority", "B A=1 A=1 B=0 B=0.2 A=1", 0, 3, 0},
		{"no member answered the label", "C B A=0.1 A=0.2", 2, 2, 2},
		{"a score is better than none", "- A A A=-5", 2, 2, 2},
		{"a tie of scores goes to more votes", "- B=1 A=1 A=0", 1, 1, 1},
		{"an unparsable answer is never selected", "- !unparsable=1 A=0", 1, 1, 1},
	} {
		for p, want := range map[string]int{"vote_strength": c.vote, "label_match": c.label, "best_score": c.score} {
			if got := policy(t, p).Select(parseGroup(t, c.group), 0).Member; got != want {
				t.Errorf("%s: %s selects member %d, want %d", c.name, p, got, want)
			}
		}
	}
}

// TestLabelNeverDecidesAVote checks that only label_match looks at the label.
func TestLabelNeverDecidesAVote(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"vote_strength", "best_score"} {
		if s := policy(t, name).Select(parseGroup(t, "B A=0.5 B=0.5"), 0); s.Answer != "A" {
			t.Errorf("%s breaks a tie by the label: it selects %s", name, s.Answer)
		}
	}
}

func TestTeachesAndReview(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, group string
		teaches     Lesson
		review      Review
	}{
		{"all right", "A A A A", NoLesson, NoReview},
		{"all alike without a label", "- A A A", NoLesson, NoReview},
		{"a majority without label and scores", "- A A A B", NoLesson, NoReview},
		{"all wrong in the same way", "B A A A", LabelMismatch, UnexplainedMismatch},
		{"a failed request explains nothing", "B A A !engine", LabelMismatch, UnexplainedMismatch},
		{"a single member agrees with nobody", "B A", LabelMismatch, NoReview},
		{"one of two failed", "B A !engine", LabelMismatch, NoReview},
		{"wrong in different ways", "C A A A B", LabelMismatch, NoReview},
		{"the majority is wrong", "B A A A B", LabelMismatch, NoReview},
		{"the majority is right", "A A A A B", Mixed, NoReview},
		{"an unparsable answer is wrong", "A A A !unparsable", Mixed, NoReview},
		{"a failed request is neither right nor wrong", "A A A !engine", NoLesson, NoReview},
		{"scores differ", "- A=0.5 A=0.25", Mixed, NoReview},
		{"scores are equal", "- A=0.5 A=0.5", NoLesson, NoReview},
		{"a missing score is no other score", "- A=0.5 A", NoLesson, NoReview},
		{"an unparsable answer was scored", "- A=1 !unparsable=0", Mixed, NoReview},
		{"a tie", "- A B", Conflict, LowAgreement},
		{"a tie whose first answer is right", "A A B", Conflict, LowAgreement},
		{"a tie whose first answer is wrong", "B A B", LabelMismatch, LowAgreement},
		{"a tie with scores", "- A=1 A=1 B=0 B=0", Conflict, LowAgreement},
		{"no majority", "- A A B C D", NoLesson, LowAgreement},
		{"no answer", "A !unparsable !engine", NoLesson, NoAnswer},
		{"no answer, and scores differ", "- !unparsable=0 !unparsable=0.5", Mixed, NoAnswer},
		{"no members", "A", NoLesson, NoAnswer},
	} {
		s := policy(t, "vote_strength").Select(parseGroup(t, c.group), 0.6)
		if s.Teaches != c.teaches || s.Review != c.review {
			t.Errorf("%s: teaches %q and review %q, want %q and %q", c.name, s.Teaches, s.Review, c.teaches, c.review)
		}
	}
}

func TestReviewIsDueBelowTheThreshold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		threshold float64
		want      Review
	}{{0, NoReview}, {0.75, NoReview}, {0.7500001, LowAgreement}, {1, LowAgreement}} {
		if got := policy(t, "vote_strength").Select(parseGroup(t, "- A A A B !engine"), c.threshold); got.Review != c.want {
			t.Errorf("an agreement of %v below %v: review %q, want %q", got.Agreement, c.threshold, got.Review, c.want)
		}
	}
}

// TestEmptyAnswerIsAnAnswer checks that an answer may normalise to nothing: it is neither
// a missing answer nor the answer of a ticket without a label.
func TestEmptyAnswerIsAnAnswer(t *testing.T) {
	t.Parallel()
	g := Group{Members: []Member{{Answer: "A"}, {Sample: 1, Answer: "A"}, {Sample: 2}}}
	if s := policy(t, "label_match").Select(g, 0); s.Answer != "A" || s.Teaches != NoLesson || len(s.Votes) != 2 {
		t.Errorf("the selection is %+v", s)
	}
}

// TestSelection shows whole selections.
func TestSelection(t *testing.T) {
	t.Parallel()
	yes := true
	for _, c := range []struct {
		group string
		want  Selection
	}{
		{"B A A B C !engine", Selection{Member: 2, Answer: "B", Agreement: 0.5, Votes: []Vote{{"A", 2}, {"B", 1}, {"C", 1}},
			LabelMatch: &yes, Teaches: Mixed, Review: LowAgreement}},
		{"B !engine", Selection{Member: -1, Votes: []Vote{}, Review: NoAnswer}},
		{"- A", Selection{Answer: "A", Agreement: 1, Votes: []Vote{{"A", 1}}}},
	} {
		if got := policy(t, "label_match").Select(parseGroup(t, c.group), 0.6); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.group, got, c.want)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	t.Parallel()
	if _, ok := Of("fastest"); ok {
		t.Error("an unknown policy is found")
	}
	if got := policies()[0].Name; got != "vote_strength" {
		t.Errorf("the default policy is %s", got)
	}
}
