package progress

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/figures"
	"rollout/shared/record"
)

// FormatRollout formats how far a rollout is, or what it came to: "40 of 100, batch 3 of 5, agreement 0.91, accuracy
// 0.8, 12 to review, 2 invalid lines".
func FormatRollout(r record.Rollout) string {
	parts := []string{Count(uint64(r.Tickets))}
	if r.AllTickets > 0 {
		parts[0] += " of " + Count(uint64(r.AllTickets))
	}
	if r.Batch > 0 {
		text := fmt.Sprintf("batch %d of %d", r.Batch, r.Batches)
		if r.Stage != "" && r.Stage != "answer" {
			text += " (" + r.Stage + ")"
		}
		parts = append(parts, text)
	}
	for _, m := range []struct {
		name  string
		value *float64
	}{{"agreement", r.Agreement}, {"accuracy", r.Accuracy}, {"score", r.Score}} {
		if m.value != nil {
			parts = append(parts, m.name+" "+formatShare(*m.value))
		}
	}
	if n := r.Failed["unparsable"]; n > 0 {
		parts = append(parts, Count(uint64(n))+" unparsable")
	}
	if r.Review > 0 {
		parts = append(parts, Count(uint64(r.Review))+" to review")
	}
	if r.Reflections > 0 {
		parts = append(parts, fmt.Sprintf("%s, %s accepted", figures.Of(r.Reflections, "reflection"),
			Count(uint64(r.Accepted))))
	}
	if len(r.Fronts) > 0 {
		kept := 0
		for _, n := range r.Fronts {
			kept += n
		}
		parts = append(parts, figures.Of(kept, "guidance")+" on the front")
	}
	if len(r.Unsound) > 0 {
		parts = append(parts, "not sound: "+SanitizeLine(strings.Join(r.Unsound, "; "), 200))
	}
	if r.Refused > 0 {
		parts = append(parts, figures.Of(r.Refused, "invalid line"))
	}
	return strings.Join(parts, ", ")
}

// FormatMissions formats what an ended rollout came to in each mission, a line each: "refunds: step 3 of 3, score 0.52
// → 0.95, holdout 0.5 → 0.97 (52 tickets)".
func FormatMissions(r record.Rollout) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Missions)) {
		m := r.Missions[name]
		text := fmt.Sprintf("%s: step %d of %d", SanitizeLine(name, nameColumns), m.Promoted, m.Steps)
		if !m.Gated && m.Steps > 0 {
			text += ", not compared"
		}
		if n := m.Promoted; n < len(m.Scores) && m.Scores[0] != nil && m.Scores[n] != nil {
			text += fmt.Sprintf(", score %s → %s", formatShare(*m.Scores[0]), formatShare(*m.Scores[n]))
		}
		if m.HoldoutAtStart != nil && m.Holdout != nil {
			text += fmt.Sprintf(", holdout %s → %s (%s)", formatShare(*m.HoldoutAtStart), formatShare(*m.Holdout),
				figures.Of(m.HoldoutTickets, "ticket"))
		}
		lines = append(lines, text)
	}
	return lines
}

func formatShare(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }
