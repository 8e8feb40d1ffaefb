package diagnosis

import (
	"testing"

	"rollout/functions/status"
)

// A judge pool that is busy with another run does not hide that the answering server hangs.
func TestRunOnlyAwaitsItsTurnWithoutAnyRequest(t *testing.T) {
	t.Parallel()
	alone := status.Share{Pool: "default", Runs: 1, Requests: 9, AllRequests: 9}
	waits := status.Share{Pool: "judges", Runs: 2, AllRequests: 9}
	quiet := status.Share{Pool: "judges", Runs: 2}
	for name, c := range map[string]struct {
		shares []status.Share
		want   bool
	}{
		"none":                  {nil, false},
		"waits":                 {[]status.Share{waits}, true},
		"waits in one pool":     {[]status.Share{alone, waits}, false},
		"nothing is asked":      {[]status.Share{quiet}, false},
		"waits, the other idle": {[]status.Share{waits, quiet}, true},
	} {
		if got := onlyAwaitsTurn(c.shares); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
