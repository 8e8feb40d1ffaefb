package rollout

import (
	"fmt"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
)

// groupOf reads the group of a ticket whose members answer so.
func groupOf(t *testing.T, c config.Run, label string, answers ...answer) (Group, error) {
	t.Helper()
	c.Missions = twoMissions
	c.Decodes = []config.Decode{{Samples: len(answers)}}
	var members []Outcome
	for n, l := range asked(t, c, ticketLine("g", label)) {
		members = append(members, outcome(t, n, l, answers[n]))
	}
	r, err := NewReader(c)
	if err != nil {
		t.Fatal(err)
	}
	return r.Read(members)
}

func TestScoreOfAMember(t *testing.T) {
	t.Parallel()
	graded := config.Run{Grades: []config.Grade{{Name: "g", Kind: config.GradeExact}}}
	score := func(s string) string {
		return fmt.Sprintf(`"score":%s,"scores":{"g":{"score":%s,"cause":"timeout"}}`, s, s)
	}
	for _, c := range []struct {
		name   string
		config config.Run
		label  string
		answer answer
		want   string
	}{
		{"the label is the grader", config.Run{}, "yes", answer{text: " yes "}, "1"},
		{"a wrong answer", config.Run{}, "yes", answer{text: "no"}, "0"},
		{"without a label there is none", config.Run{}, "", answer{text: "yes"}, "none"},
		{"an unparsable answer is a wrong one", config.Run{}, "yes", answer{text: " "}, "0"},
		{"an unparsable answer without a label", config.Run{}, "", answer{text: " "}, "none"},
		{"a failed one has none", config.Run{}, "yes", answer{class: fault.Engine}, "none"},
		{"the graders' counts", graded, "yes", answer{text: "no", scores: score("0.25")}, "0.25"},
		{"a score beyond all sums", graded, "yes", answer{text: "yes", scores: score("-1e300")}, "none"},
		{"a missing score of the graders", graded, "yes", answer{text: "yes", scores: score("null")}, "none"},
		{"an unparsable answer that is graded", graded, "yes", answer{text: " ", scores: score("0.5")}, "0.5"},
	} {
		g, err := groupOf(t, c.config, c.label, c.answer)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := "none"
		if s := g.members[0].score; s != nil {
			got = fmt.Sprint(*s)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestFailedMemberFailsNoTicket checks that the others are selected from, and that a
// failure takes part in no vote and in no mean.
func TestFailedMemberFailsNoTicket(t *testing.T) {
	t.Parallel()
	g, err := groupOf(t, config.Run{}, "yes", answer{text: "yes"}, answer{class: fault.Timeout}, answer{text: "no"},
		answer{text: "yes"}, answer{class: fault.Engine})
	if err != nil {
		t.Fatal(err)
	}
	if s := g.selection; s.Member != 0 || s.Answer != "yes" || s.Agreement != 2.0/3 || s.Teaches != selection.Mixed {
		t.Errorf("it selects %+v", s)
	}
	if g.stats.Scored != 3 || g.stats.Mean != 2.0/3 {
		t.Errorf("the statistics are %+v", g.stats)
	}
	var totals Totals
	totals.Add(g)
	if totals.Tickets != 1 || totals.Answered != 3 || totals.Failed["timeout"] != 1 || totals.Failed["engine"] != 1 ||
		totals.Labelled != 1 || totals.Right != 1 || totals.Scored != 3 || totals.Score != 2 {
		t.Errorf("the totals are %+v", totals)
	}
}

// TestTicketWithoutAVerdictIsReviewed checks that one which was answered counts as not
// right, and that one which was never answered does not count.
func TestTicketWithoutAVerdictIsReviewed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		second   answer
		labelled int
	}{{answer{text: ""}, 1}, {answer{class: fault.Engine}, 0}} {
		g, err := groupOf(t, config.Run{}, "yes", answer{class: fault.Timeout}, c.second)
		if err != nil {
			t.Fatal(err)
		}
		var totals Totals
		totals.Add(g)
		if g.selection.Member != -1 || g.selection.Review != selection.NoAnswer || totals.Selected != 0 ||
			totals.Review != 1 || totals.Labelled != c.labelled || totals.Right != 0 {
			t.Errorf("%+v, %+v", g.selection, totals)
		}
	}
}

// TestTotalsAreIndependentCopies checks that counting goes on from a stage without a change
// to it.
func TestTotalsAreIndependentCopies(t *testing.T) {
	t.Parallel()
	a := Totals{Failed: map[string]int{"engine": 1}}
	b := a.Clone()
	b.fail("engine")
	if a.Failed["engine"] != 1 || b.Failed["engine"] != 2 {
		t.Errorf("%v, %v", a.Failed, b.Failed)
	}
}

func TestReaderRefusesWhatNoConfigMaySay(t *testing.T) {
	t.Parallel()
	for _, c := range []config.Run{{Answer: &config.Answer{Pattern: "("}}, {Selection: &config.Selection{Policy: "?"}}} {
		if _, err := NewReader(c); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestDamagedMembersAreFound(t *testing.T) {
	t.Parallel()
	good := `{"id":"t0.e0.d0.s0","messages":[{}],"ticket":{"group_id":"g"},"epoch":0}`
	for name, o := range map[string]Outcome{
		"no line":         {Row: []byte(`{"completion":"x"}`)},
		"no row":          {Line: []byte(good)},
		"no completion":   {Line: []byte(good), Row: []byte(`{}`)},
		"no ticket":       {Line: []byte(`{"id":"x"}`), Row: []byte(`{"completion":"x"}`)},
		"a ticket of 7":   {Line: []byte(`{"id":"x","ticket":7}`), Row: []byte(`{"completion":"x"}`)},
		"a group of text": {Line: []byte(`{"id":"x","ticket":{"group_id":[]}}`), Row: []byte(`{"completion":"x"}`)},
	} {
		r, err := NewReader(config.Run{Missions: twoMissions})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read([]Outcome{o}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, _ := NewReader(config.Run{Grades: []config.Grade{{Name: "g"}}})
	_, err := r.Read([]Outcome{{Line: []byte(good), Row: []byte(`{"completion":"x"}`)}})
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "member 0 of a ticket") {
		t.Errorf("no scores: %v", err)
	}
}
