package progress

import (
	"fmt"
	"strconv"

	"rollout/functions/api"
)

// DoneAndTotal is how much of a run is done, and of how much: items, or the steps of
// a training.
func DoneAndTotal(s api.Status) (got, total uint64) {
	if t := s.Training; t != nil {
		return uint64(max(0, t.Step)), uint64(max(0, t.Steps))
	}
	return s.Items.Processed(), s.Items.Total
}

// FormatTraining renders how far a training is: "step 120/1,000 12%, loss 2.31,
// 5,400 tokens/s, ETA 45s".
func FormatTraining(s api.Status) string {
	got, total := DoneAndTotal(s)
	text := fmt.Sprintf("step %s/%s %s", Count(got), Count(total), Percent(got, total))
	if l := s.Training.Loss; l != nil {
		text += ", loss " + strconv.FormatFloat(*l, 'g', 4, 64)
	}
	if rate := FormatTokenRate(s.Training.TokensPerSecond); rate != "" {
		text += ", " + rate
	}
	if s.ETASeconds != nil {
		text += ", ETA " + FormatETA(s.ETASeconds)
	}
	return text
}
