package progress

import (
	"testing"

	"rollout/shared/grade"
	"rollout/shared/record"
)

func TestFormatScores(t *testing.T) {
	t.Parallel()
	mean := func(x float64) *float64 { return &x }
	for want, s := range map[string]record.Summary{
		"": {},
		"0.8125: correct 0.9, reward 0.7248 (1,012 without: 1,010 timeout, 2 declined)": {
			Score: &record.MeanScore{Mean: mean(0.8125)}, Scores: map[string]record.MeanScore{
				"reward": {Mean: mean(0.72481), Missing: 1012,
					MissingByCause: map[grade.Cause]uint64{grade.Declined: 2, grade.TimedOut: 1010}},
				"correct": {Mean: mean(0.9)},
			}},
		"no score: correct no score (3 without: 3 no_expected)": {
			Score: &record.MeanScore{}, Scores: map[string]record.MeanScore{
				"correct": {Missing: 3, MissingByCause: map[grade.Cause]uint64{grade.NoExpected: 3}}}},
	} {
		if got := FormatScores(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
