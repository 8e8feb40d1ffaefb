package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/grade"
	"rollout/shared/record"
)

// FormatScores formats the mean scores of a run: "0.81: correct 0.9, reward 0.72 (12 without: 10 timeout, 2 declined)".
// It is "" for a run without graders.
func FormatScores(s record.Summary) string {
	if s.Score == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Scores)) {
		g := s.Scores[name]
		text := name + " " + formatMean(g)
		if g.Missing > 0 {
			text += fmt.Sprintf(" (%s without: %s)", Count(g.Missing), formatCauses(g.MissingByCause))
		}
		parts = append(parts, text)
	}
	return formatMean(*s.Score) + ": " + strings.Join(parts, ", ")
}

func formatMean(m record.MeanScore) string {
	if m.Mean == nil {
		return "no score"
	}
	return strconv.FormatFloat(*m.Mean, 'g', 4, 64)
}

// formatCauses formats causes by their number: "10 timeout, 2 declined".
func formatCauses(n map[grade.Cause]uint64) string {
	causes := slices.SortedFunc(maps.Keys(n), func(a, b grade.Cause) int {
		return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, c := range causes {
		parts = append(parts, Count(n[c])+" "+string(c))
	}
	return strings.Join(parts, ", ")
}
