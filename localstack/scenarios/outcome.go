package scenarios

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"rollout/shared/record"
)

// Outcome is what a run left for its user, without the times of its rows.
type Outcome struct {
	Completions, Errors string
	Summary             record.Summary
}

// generatedAt matches the only part of a row that differs between two runs (I10).
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// WithoutTimes returns rows without the times at which they were made.
func WithoutTimes(rows string) string { return generatedAt.ReplaceAllString(rows, `"generated_at":""`) }

// ReadOutcome reads the files of a run.
func ReadOutcome(t *testing.T, file func(name string) string) Outcome {
	t.Helper()
	o := Outcome{Completions: WithoutTimes(file(record.CompletionsFile)), Errors: file(record.ErrorsFile)}
	if err := json.Unmarshal([]byte(file(record.SummaryFile)), &o.Summary); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(o.Completions, "\n") + strings.Count(o.Errors, "\n"); rows != int(o.Summary.Items) {
		t.Errorf("the files have %d rows, the summary has %d items (I1)", rows, o.Summary.Items)
	}
	return o
}

// WantSame checks that two runs of one input left the same files and counts.
func WantSame(t *testing.T, got, want Outcome) {
	t.Helper()
	WantSameLines(t, record.CompletionsFile, got.Completions, want.Completions)
	WantSameLines(t, record.ErrorsFile, got.Errors, want.Errors)
	if g, w := got.Summary, want.Summary; g.Items != w.Items || g.Completed != w.Completed || g.Failed != w.Failed ||
		g.Phase != w.Phase {
		t.Errorf("the summary has phase %s, %d items, %d completed, %d failed; want %s, %d, %d, %d",
			g.Phase, g.Items, g.Completed, g.Failed, w.Phase, w.Items, w.Completed, w.Failed)
	}
}

// WantSameLines checks that two files are the same, and shows the first line that differs.
func WantSameLines(t *testing.T, name, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	at := 0
	for at < min(len(g), len(w))-1 && g[at] == w[at] {
		at++
	}
	t.Errorf("%s differs at line %d (%d lines, want %d):\n%.300s\nwant\n%.300s", name, at+1, len(g), len(w), g[at], w[at])
}
