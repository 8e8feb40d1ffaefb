package progress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rollout/shared/figures"
	"rollout/shared/record"
)

// FormatTrials formats what the variants of an ended run came to, one line each, the best one first:
// "terse: score 0.81 (0.74 to 0.88) of 200 trials, 1 failed: refused 1, 2 not counted: engine 2".
func FormatTrials(t record.Trials) (lines []string) {
	sorted := slices.Clone(t.Variants)
	slices.SortStableFunc(sorted, func(a, b record.TrialVariant) int {
		switch {
		case a.Score == nil && b.Score == nil, a.Score != nil && b.Score != nil && *a.Score == *b.Score:
			return 0
		case b.Score == nil || a.Score != nil && *a.Score > *b.Score:
			return -1
		}
		return 1
	})
	for _, v := range sorted {
		text := SanitizeLine(v.Name, nameColumns) + ": "
		if v.Score != nil {
			text += "score " + formatShare(*v.Score)
			if v.Low != nil && v.High != nil {
				text += fmt.Sprintf(" (%s to %s)", formatShare(*v.Low), formatShare(*v.High))
			}
			text += " of "
		}
		text += figures.Of(v.Trials, "trial")
		for _, of := range []struct {
			what  string
			count map[string]int
		}{{"failed", v.Failed}, {"without a score", v.Ungraded}, {"not counted", v.Infrastructure}} {
			if n := sumOf(of.count); n > 0 {
				text += fmt.Sprintf(", %s %s: %s", figures.Count(n), of.what, formatCounts(of.count))
			}
		}
		if v.Pruned > 0 {
			text += ", " + figures.Count(v.Pruned) + " pruned"
			if at := v.PrunedAt; at != nil {
				text += fmt.Sprintf(" at look %d of %d", at.Look, at.Looks)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

func sumOf(counts map[string]int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}

// formatCounts formats counts by name: "engine 2, timeout 1".
func formatCounts(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, SanitizeLine(name, nameColumns)+" "+figures.Count(counts[name]))
	}
	return strings.Join(parts, ", ")
}
