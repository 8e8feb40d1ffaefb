package e2e

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
)

// outcome is what a run left for its user.
type outcome struct{ scenarios.Outcome }

// outcome reads the files of an ended run.
func (i *testInstallation) outcome(id identity.RunID) outcome {
	i.t.Helper()
	return readOutcome(i.t, i.bucket("runs/"+string(id)))
}

func readOutcome(t *testing.T, folder string) outcome {
	t.Helper()
	return outcome{scenarios.ReadOutcome(t, func(name string) string { return read(t, filepath.Join(folder, name)) })}
}

// wantSame checks that two runs of one input left the same files and counts.
func wantSame(t *testing.T, got, want outcome) {
	t.Helper()
	scenarios.WantSame(t, got.Outcome, want.Outcome)
}

// errorRow is a row of errors.jsonl in the plain dialect.
type errorRow struct {
	ID    *string
	Item  int
	Line  int
	Class string
	Error string
}

// errorRows decodes errors.jsonl.
func (o outcome) errorRows(t *testing.T) []errorRow {
	t.Helper()
	var out []errorRow
	for _, l := range lines(t, o.Errors) {
		var r errorRow
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatalf("errors.jsonl has a line that is not JSON: %v\n%s", err, l)
		}
		out = append(out, r)
	}
	return out
}

// ids are the ids of completions.jsonl in the plain dialect, in its order.
func (o outcome) ids(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, l := range lines(t, o.Completions) {
		var r struct{ ID string }
		if err := json.Unmarshal([]byte(l), &r); err != nil || r.ID == "" {
			t.Fatalf("completions.jsonl has a line without an id: %v\n%s", err, l)
		}
		out = append(out, r.ID)
	}
	return out
}

// wantEndedEarly checks a run that ended early against the undisturbed run of
// the same input (I1): each item is in exactly one file under its own id, the
// answers are the undisturbed ones in the same order, and an item without an
// answer has an error of the class. It returns the number of answers.
func wantEndedEarly(t *testing.T, got, want outcome, class string) (answered int) {
	t.Helper()
	full := lines(t, want.Completions)
	at := 0
	for _, row := range lines(t, got.Completions) {
		for at < len(full) && full[at] != row {
			at++
		}
		if at == len(full) {
			t.Fatalf("an answer is not in the undisturbed run, or is out of order:\n%.300s", row)
		}
		at++
		answered++
	}
	failed := map[int]string{} // the undisturbed run's error classes, by item
	for _, e := range want.errorRows(t) {
		failed[e.Item] = e.Class
	}
	unanswered := map[string]bool{}
	for _, id := range want.ids(t) {
		unanswered[id] = true
	}
	for _, id := range got.ids(t) {
		delete(unanswered, id)
	}
	errs := got.errorRows(t)
	last := -1
	for _, e := range errs {
		if e.Item <= last {
			t.Errorf("errors.jsonl has item %d after item %d", e.Item, last)
		}
		last = e.Item
		switch {
		case failed[e.Item] != "":
			if e.Class != class && e.Class != failed[e.Item] {
				t.Errorf("item %d failed as %s, want %s or %s", e.Item, e.Class, class, failed[e.Item])
			}
		case e.ID == nil || !unanswered[*e.ID]:
			t.Errorf("an error row has no id of an item without an answer: %+v", e)
		default:
			delete(unanswered, *e.ID)
			if e.Class != class {
				t.Errorf("item %d failed as %s, want %s", e.Item, e.Class, class)
			}
		}
	}
	if len(unanswered) > 0 {
		t.Errorf("%d items are in neither file", len(unanswered))
	}
	if total := answered + len(errs); uint64(total) != want.Summary.Items || got.Summary.Items != want.Summary.Items {
		t.Errorf("%d answers and %d errors for %d items; the summary says %d items", answered, len(errs),
			want.Summary.Items, got.Summary.Items)
	}
	return answered
}

// undisturbed runs a file once without any disturbance and returns its outcome.
func undisturbed(t *testing.T, file string) outcome {
	t.Helper()
	i := install(t, serve(t).url, 0, smallShards)
	id := i.submit(file)
	i.awaitEnd(id)
	o := i.outcome(id)
	i.up.signal(15)
	i.up.wantExit(0)
	return o
}
