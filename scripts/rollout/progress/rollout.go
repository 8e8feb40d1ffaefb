package progress

import (
	"fmt"
	"strconv"
	"strings"

	"rollout/shared/record"
)

// FormatRollout formats how far a rollout is, or what it came to: "40 of 100, batch 3 of 5, agreement 0.91, accuracy
// 0.8, 12 to review, 2 lines are no tickets".
func FormatRollout(r record.Rollout) string {
	parts := []string{Count(uint64(r.Tickets))}
	if r.AllTickets > 0 {
		parts[0] += " of " + Count(uint64(r.AllTickets))
	}
	if r.Batch > 0 {
		parts = append(parts, fmt.Sprintf("batch %d of %d", r.Batch, r.Batches))
	}
	for _, m := range []struct {
		name  string
		value *float64
	}{{"agreement", r.Agreement}, {"accuracy", r.Accuracy}, {"score", r.Score}} {
		if m.value != nil {
			parts = append(parts, m.name+" "+strconv.FormatFloat(*m.value, 'g', 3, 64))
		}
	}
	if n := r.Failed["unparsable"]; n > 0 {
		parts = append(parts, Count(uint64(n))+" unparsable")
	}
	if r.Review > 0 {
		parts = append(parts, Count(uint64(r.Review))+" to review")
	}
	if r.Refused > 0 {
		parts = append(parts, formatRefused(r.Refused))
	}
	return strings.Join(parts, ", ")
}

// formatRefused formats how many lines of the input are no tickets.
func formatRefused(n int) string {
	if n == 1 {
		return "1 line is no ticket"
	}
	return Count(uint64(n)) + " lines are no tickets"
}
