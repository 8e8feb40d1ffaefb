package scenarios

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/localstack/fakellm"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// A run that a command submits has the files of a laptop, which a command reads. The API
// tells the same of it.
func commandsAndAPI(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{}, Settings{Machines: 1})
	content := SimplePrompts(40) // submit --wait fails if items fail
	output := d.Do("submit", Write(t, t.TempDir(), "a b+c.jsonl", content), "--wait")
	var all struct{ Runs []status.Status }
	d.get("/v1/runs", &all)
	if len(all.Runs) != 1 || !all.Runs[0].Phase.Ended() {
		t.Fatalf("the API has the runs %+v; submit wrote %s", all.Runs, output)
	}
	id := all.Runs[0].Run
	if d.Phase(id) != run.Completed || !strings.Contains(d.Do("status", string(id)), "completed") {
		t.Errorf("the run is %s", d.Phase(id))
	}
	want := d.Local(all.Runs[0].Inputs[0], content)
	WantSame(t, d.AwaitEnd(id), want)
	out := filepath.Join(t.TempDir(), "completions.jsonl")
	d.Do("results", string(id), "--output", out)
	WantSameLines(t, "the file of results", WithoutTimes(read(t, out)), want.Completions)
	d.Check()
}

// A stopped run sends no more requests. Each item is in one of the files, and the answers
// are those of a whole run.
func stoppedRunKeepsItsAnswers(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{Latency: 50 * time.Millisecond}, Settings{Machines: 2})
	const key = "prompts/stopped.jsonl"
	content := MixedPrompts(640)
	want := d.Local(key, content)
	from, id := d.server.Requests(), d.Put(key, content)
	d.awaitRequests(id, from, 100)
	if !d.Control("stop", id) {
		t.Fatal("the run is not stopped")
	}
	got := d.AwaitEnd(id)
	if got.Summary.Phase != string(run.Stopped) || got.Summary.Completed == 0 ||
		got.Summary.Completed == want.Summary.Completed || got.Summary.Items != want.Summary.Items {
		t.Errorf("the summary is %+v, want stopped with some answers", got.Summary)
	}
	rows := strings.SplitAfter(want.Completions, "\n")
	for row := range strings.Lines(got.Completions) {
		at := slices.Index(rows, row)
		if at < 0 {
			t.Fatalf("an answer is not in the whole run, or is out of order: %.300s", row)
		}
		rows = rows[at+1:]
	}
	d.Check()
}

// A paused run sends no request (I9), and goes on when it is resumed.
func pausedRunGoesOn(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{Latency: 50 * time.Millisecond}, Settings{Machines: 2})
	const key = "prompts/paused.jsonl"
	content := MixedPrompts(640)
	want := d.Local(key, content)
	from, id := d.server.Requests(), d.Put(key, content)
	d.awaitRequests(id, from, 100)
	if !d.pause(id) {
		t.Fatal("the run is not paused")
	}
	WantSame(t, d.AwaitEnd(id), want)
	d.Check()
}

// pause pauses a run, which must send no request until it is resumed. It reports whether
// the run was paused before it ended.
func (d *Fixture) pause(id identity.RunID) bool {
	d.t.Helper()
	if !d.Control("pause", id) {
		return false
	}
	var at run.Phase
	Eventually(d.t, "the run is paused", func() bool {
		at = d.Phase(id)
		return at == run.Paused || at == run.Interrupted || at.Ended()
	})
	asked, minutes := d.server.Requests(), d.Minutes()
	Eventually(d.t, "the timer calls twice", func() bool { return d.Minutes() > minutes+2 })
	if got := d.server.Requests(); got != asked {
		d.t.Errorf("%d requests while the run is %s", got-asked, at)
	}
	d.Control("resume", id)
	return !at.Ended()
}
