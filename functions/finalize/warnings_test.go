package finalize

import (
	"strings"
	"testing"

	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
)

func TestSummaryWarnsOfALimitThatWorkersCouldNotReach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, most int
		want        string
	}{
		{64, 12, "up to 64 trials could be in flight at once, and the run's workers sent at most 12 requests at once"},
		{12, 12, ""}, {0, 0, ""}, {64, 0, ""},
	} {
		got := strings.Join(warnings(schedule.Constraints{MaxInFlight: c.limit}, run.State{MostRequests: c.most}), "\n")
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
