package progress

import (
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

func TestRolloutIsFormattedInOneLine(t *testing.T) {
	t.Parallel()
	share := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		r    record.Rollout
		want string
	}{
		{record.Rollout{Batch: 1, Batches: 5, AllTickets: 100}, "0 of 100, batch 1 of 5"},
		{record.Rollout{Batch: 3, Batches: 5, AllTickets: 2000, Tickets: 1000, Agreement: share(2.0 / 3),
			Accuracy: share(1), Review: 12}, "1,000 of 2,000, batch 3 of 5, agreement 0.667, accuracy 1, 12 to review"},
		{record.Rollout{Batches: 5, Tickets: 100, Score: share(0.5), Failed: map[string]int{"unparsable": 3, "engine": 9},
			Refused: 1}, "100, score 0.5, 3 unparsable, 1 invalid line"},
		{record.Rollout{Tickets: 8, Reflections: 2, Accepted: 1, Fronts: map[string]int{"a": 3, "b": 1}},
			"8, 2 reflections, 1 accepted, 4 guidances on the front"},
		{record.Rollout{Refused: 1200}, "0, 1,200 invalid lines"},
	} {
		if got := FormatRollout(c.r); got != c.want {
			t.Errorf("%+v is %q, want %q", c.r, got, c.want)
		}
	}
}

// TestLinesThatAreNoTicketsFailTheRun checks that a program notices them: by the exit code,
// which an error gives.
func TestLinesThatAreNoTicketsFailTheRun(t *testing.T) {
	t.Parallel()
	s := status.Status{Run: "R", Phase: run.CompletedWithErrors, Rollout: &record.Rollout{Refused: 2},
		Items: status.Items{Total: 8, Done: 8}, Errors: "runs/R/errors.jsonl"}
	path := func(key string) string { return key }
	if err := Outcome(s, path); err == nil ||
		err.Error() != "run R: 2 invalid lines (see runs/R/failures.jsonl)" {
		t.Error(err)
	}
	s.Items.Done, s.Items.Failed = 7, 1
	if err := Outcome(s, path); err == nil || !strings.Contains(err.Error(),
		"1 of 8 items failed (see runs/R/errors.jsonl)") {
		t.Error(err)
	}
}
