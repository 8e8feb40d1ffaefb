package rollout

import (
	"context"

	"rollout/shared/blob"
	"rollout/shared/record"
)

// The rows of a rollout's files, for programs that read them.
type (
	Trajectory = trajectory // of TrajectoriesFile
	Failure    = failure    // of FailuresFile, about a member: rows about a line of the input have only Cause and Message
	Selected   = selected   // of SelectionsFile and ReviewFile
	Metrics    = metrics    // of MetricsFile
)

// StartMeasures returns how each mission that has a holdout did on it under step 0. It is
// empty once the work of the run is cleaned up.
func StartMeasures(ctx context.Context, blobs blob.Store, m record.Manifest) (map[string]Measure, error) {
	start := map[string]Measure{}
	for s, err := range Stages(ctx, blobs, m) {
		if err != nil {
			return nil, err
		}
		for mission, measure := range s.Start {
			start[mission] = measure
		}
		if s.Kind != Measuring { // all are measured before anything else is asked
			break
		}
	}
	return start, nil
}
