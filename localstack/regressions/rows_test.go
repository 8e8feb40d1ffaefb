package regressions

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"

	"rollout/shared/fault"
)

// times matches the only parts of a row that differ between two runs.
var times = regexp.MustCompile(`"generated_at":"[^"]*"|"created":[0-9]+`)

// timeless joins the rows without their times.
func timeless(rows [][]byte) string {
	return string(times.ReplaceAll(bytes.Join(rows, []byte("\n")), nil))
}

// answerRow is an output row of the plain dialect.
type answerRow struct {
	ID         json.RawMessage `json:"id"`
	Prompt     string          `json:"prompt"`
	Completion string          `json:"completion"`
}

// errorRow is an error row of the plain dialect.
type errorRow struct {
	ID    json.RawMessage `json:"id"`
	Item  uint64          `json:"item"`
	File  string          `json:"file"`
	Line  uint64          `json:"line"`
	Class fault.Class     `json:"class"`
	Error string          `json:"error"`
}

// parsed decodes rows, each a JSON value.
func parsed[T any](t *testing.T, rows [][]byte) []T {
	t.Helper()
	out := make([]T, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal(r, &out[i]); err != nil {
			t.Fatalf("row %d is not valid: %v: %.200s", i, err, r)
		}
	}
	return out
}

// wantCounts checks the numbers of answers and errors in the files and in the
// summary (I1).
func (o outcome) wantCounts(t *testing.T, answers, errs int) {
	t.Helper()
	if len(o.out) != answers || len(o.errs) != errs {
		t.Errorf("%s: %d output and %d error rows; want %d and %d (%s)", o.Name, len(o.out), len(o.errs), answers,
			errs, o.Message)
	}
	if o.Items != uint64(answers+errs) || o.Completed != uint64(answers) || o.Failed != uint64(errs) {
		t.Errorf("%s: the summary has %d items, %d completed, %d failed", o.Name, o.Items, o.Completed, o.Failed)
	}
	byClass := 0
	for _, n := range o.FailedByClass {
		byClass += n
	}
	if byClass != errs {
		t.Errorf("%s: the summary has the classes %v, want %d errors", o.Name, o.FailedByClass, errs)
	}
}

// wantPhase checks the phase in which the run ended.
func (o outcome) wantPhase(t *testing.T, want string) {
	t.Helper()
	if o.Phase != want {
		t.Errorf("%s ended as %s (%s), want %s", o.Name, o.Phase, o.Message, want)
	}
}
