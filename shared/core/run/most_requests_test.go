package run

import (
	"testing"

	"rollout/shared/core/schedule"
)

// TestRunRemembersWhatItsWorkersTake checks the value that says whether max_concurrency was above
// what the workers could do: it grows up to the limit, and stays when workers leave.
func TestRunRemembersWhatItsWorkersTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit    int
		requests []int
		want     int
	}{
		"no limit":            {0, []int{4, 9}, 0},
		"fewer than it":       {10, []int{0, 4, 8, 2}, 8},
		"more than it":        {10, []int{4, 40}, 10},
		"no worker ever came": {10, []int{0, 0}, 0},
	} {
		s := New(testRun)
		for _, n := range c.requests {
			w := Observed{Shards: 99, Items: 99, Complete: true, Pool: 4, Requests: n}
			s, _ = Step(s, w, Rules{Constraints: schedule.Constraints{MaxInFlight: c.limit}}, nil, epoch)
		}
		if s.MostRequests != c.want {
			t.Errorf("%s: %d, want %d", name, s.MostRequests, c.want)
		}
	}
}
