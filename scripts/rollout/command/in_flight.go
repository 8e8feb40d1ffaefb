package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"rollout/functions/diagnosis"
	"rollout/scripts/rollout/progress"
	"rollout/shared/figures"
)

// inFlightShown is how many trials in flight status shows.
const inFlightShown = 8

// formatInFlight returns a line for each of the first trials in flight, the longest of them first, and
// one for the others; none for nil.
func formatInFlight(t *diagnosis.TrialsInFlight, now time.Time) (lines []string) {
	if t == nil {
		return nil
	}
	all := slices.SortedFunc(maps.Values(t.Control.Active), func(a, b diagnosis.ActiveTrial) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Index, b.Index))
	})
	for n, a := range all {
		if n == inFlightShown {
			break
		}
		text := fmt.Sprintf("%s (task %s) for %s at worker %s", progress.SanitizeLine(a.ID, 100),
			progress.SanitizeLine(a.Task, 60), figures.Duration(max(0, now.Sub(a.StartedAt))), a.Worker)
		if a.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", a.Attempt)
		}
		if !a.Control.Current {
			text += ", which has not heard of the newest change of the run"
		}
		lines = append(lines, text)
	}
	if more := len(all) - len(lines); more > 0 {
		text := "and " + figures.Of(more, "more trial")
		if t.Next != nil {
			text += " at least"
		}
		lines = append(lines, text)
	}
	return lines
}
