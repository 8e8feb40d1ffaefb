package diagnosis

import (
	"fmt"

	"rollout/functions/status"
	"rollout/shared/figures"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// newestBatch says how far a rollout is planned.
func newestBatch(r record.Rollout) string {
	text := fmt.Sprintf("batch %d of %d is planned, after %s of %s", r.Batch, r.Batches,
		figures.Count(r.Tickets), figures.Of(r.AllTickets, "ticket"))
	if r.Batch < r.Batches {
		text += "; the next one begins when its answers are in"
	}
	return text
}

// refusedLines says which lines of a rollout's input are invalid.
func refusedLines(s status.Status) []string {
	if s.Rollout == nil || s.Rollout.Refused == 0 {
		return nil
	}
	file := record.OutputKey(s.Run, rollout.FailuresFile)
	if s.EndedAt == nil {
		return []string{fmt.Sprintf("invalid lines in its input: %d; %s names them when it has ended",
			s.Rollout.Refused, file)}
	}
	return []string{fmt.Sprintf("invalid lines in its input: %d, see %s", s.Rollout.Refused, file)}
}
