package grading

import (
	"encoding/json"
	"io"
	"strconv"
	"testing"
	"testing/synctest"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// TestItemsAreGradedByAllGraders has the line of an item a row, and the members of
// its row.
func TestItemsAreGradedByAllGraders(t *testing.T) {
	t.Parallel()
	grades := []config.Grade{
		{Name: "correct", Kind: config.GradeExact, Expected: "meta.answer"},
		{Name: "reward", Kind: config.GradeHTTP, Service: "reward", Expected: "meta.answer"},
		{Name: "other", Kind: config.GradeHTTP, Service: "elsewhere", Weight: new(float64)},
	}
	const other = `"other":{"score":null,"cause":"unconfigured"}`
	for line, want := range map[string]string{
		`{"prompt":"x","meta":{"answer":"right"}}`: `"score":1,"scores":{"correct":{"score":1},` +
			`"reward":{"score":1},` + other + `}`,
		`{"prompt":"x","meta":{"answer":"left"}}`: `"score":0.5,"scores":{"correct":{"score":0},` +
			`"reward":{"score":1},` + other + `}`,
		`{"prompt":"x"}`: `"score":null,"scores":{"correct":{"score":null,"cause":"no_expected"},` +
			`"reward":{"score":null,"cause":"no_expected"},` + other + `}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{replies: []reply{honest}}
			services := &Services{byName: map[string]*service{"reward": connect(t, s, io.Discard)}}
			g, err := services.Graders(grades)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan []byte, 1)
			g.Grade(t.Context(), []byte(line), cases("right"), func(members []byte) { done <- members })
			if got := string(<-done); got != want {
				t.Errorf("%s: %s, want\n%s", line, got, want)
			}
			for _, r := range s.requests {
				if want := grade.Lookup([]byte(line), "meta.answer"); string(r.Items[0].Expected) != string(want) {
					t.Errorf("%s: the service got the expected value %s", line, r.Items[0].Expected)
				}
			}
		})
	}
}

func TestGradersWithoutServicesAreDoneAtOnce(t *testing.T) {
	t.Parallel()
	var none *Services
	g, err := none.Graders([]config.Grade{{Name: "a", Kind: config.GradeExact, Expected: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	answers := []grade.Case{{Answer: "1"}, {Answer: "2"}}
	g.Grade(t.Context(), json.RawMessage(`{"a":"2"}`), answers, func(members []byte) { got = string(members) })
	want := `"score":0.5,"scores":{"a":{"score":0.5}},"answer_scores":[{"score":0,"scores":{"a":{"score":0}}},` +
		`{"score":1,"scores":{"a":{"score":1}}}]`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if !g.AwaitRoom(t.Context(), nil) {
		t.Error("no room, although no service is behind")
	}
}

// The scores of judges stay open, and hold up no other.
func TestScoresOfJudgesStayOpen(t *testing.T) {
	t.Parallel()
	var none *Services
	g, err := none.Graders([]config.Grade{{Name: "a", Kind: config.GradeExact, Expected: "a"},
		{Name: "style", Kind: config.GradeJudge, Expected: "b"}, {Name: "tone", Kind: config.GradeJudge}})
	if err != nil {
		t.Fatal(err)
	}
	const tone = `,"tone":{"score":null,"cause":"stopped"}}`
	for line, want := range map[string]string{
		`{"a":"x","b":1}`: `"score":null,"scores":{"a":{"score":1},"style":{"score":null,"cause":"stopped"}` + tone,
		`{"a":"y"}`:       `"score":null,"scores":{"a":{"score":0},"style":{"score":null,"cause":"no_expected"}` + tone,
	} {
		got := ""
		g.Grade(t.Context(), []byte(line), cases("x"), func(members []byte) { got = string(members) })
		if got != want {
			t.Errorf("%s: %s, want\n%s", line, got, want)
		}
	}
}

func TestRunsWithoutGradersHaveNone(t *testing.T) {
	t.Parallel()
	var none *Services
	if g, err := none.Graders(nil); g != nil || err != nil {
		t.Errorf("%v, %v", g, err)
	}
}

func TestGradersThatCanNotBeMadeAreCorrupt(t *testing.T) {
	t.Parallel()
	var none *Services
	_, err := none.Graders([]config.Grade{{Name: "a", Kind: config.GradeRegex, Pattern: "("}})
	if !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want Corrupt", err)
	}
}

// TestGradersOfARunAreMadeOnce asks for those of some runs again and again.
func TestGradersOfARunAreMadeOnce(t *testing.T) {
	t.Parallel()
	var s Services
	of := func(run int) *Graders {
		g, err := s.Graders([]config.Grade{{Name: "a", Kind: config.GradeRegex, Pattern: strconv.Itoa(run)}})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, second := of(1), of(2)
	if first == second || of(1) != first || of(2) != second {
		t.Error("two runs share graders, or one has several")
	}
	for run := range maxMade {
		of(10 + run)
	}
	if n := len(s.made); n != maxMade {
		t.Errorf("the graders of %d runs are kept, want %d", n, maxMade)
	}
	if of(1) == first {
		t.Error("graders are kept for too many runs")
	}
}
