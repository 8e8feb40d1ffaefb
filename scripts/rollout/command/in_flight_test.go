package command

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/diagnosis"
)

func TestStatusShowsSeveralTrialsInFlight(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := diagnosis.TrialsInFlight{Control: diagnosis.RunControl{Active: map[string]diagnosis.ActiveTrial{}}}
	add := func(id string, age time.Duration, attempt uint64, current bool) {
		of.Control.Active[id] = diagnosis.ActiveTrial{ID: id, Task: "q\x1b[1m", Worker: "w1", Attempt: attempt,
			StartedAt: now.Add(-age), Control: diagnosis.TrialControl{Current: current}}
	}
	add("t0.a.r0", 5*time.Second, 1, true)
	add("t1.b.r2", 90*time.Second, 2, false)
	got := strings.Join(formatInFlight(&of, now), "|")
	for _, want := range []string{"t1.b.r2 (task q",
		" for 1m30s at worker w1, attempt 2, which has not heard of the newest", "|t0.a.r0 (task"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("a control character is printed: %q", got)
	}
	for _, id := range []string{"c", "d", "e", "f", "g", "h", "i", "j"} {
		add(id, 0, 1, true)
	}
	next := 99
	of.Next = &next
	lines := formatInFlight(&of, now)
	if len(lines) != inFlightShown+1 || lines[inFlightShown] != "and 2 more trials at least" {
		t.Errorf("%q", lines)
	}
	if formatInFlight(nil, now) != nil {
		t.Error("a run of another kind has trials in flight")
	}
}
