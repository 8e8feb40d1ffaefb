package config

import (
	"strings"
	"testing"
)

// TestGateThatNoCandidateCouldPassIsRefused has the keys of a gate, and a part of the only
// problem; none is "".
func TestGateThatNoCandidateCouldPassIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"the defaults":                {"", ""},
		"as many tickets as it needs": {"tickets = 20", ""},
		"fewer tickets than it needs": {"tickets = 19", "gate.tickets: is too low: with 19 tickets and a min_tickets of 20"},
		"too few for the level":       {"tickets = 4\nmin_tickets = 0", "gate.tickets: is too low: with 4 tickets"},
		"just enough for the level":   {"tickets = 5\nmin_tickets = 0", ""},
		"too few resamples":           {"resamples = 10", "gate.resamples: is too low"},
	} {
		_, err := ParseRun("x.toml", []byte(rolloutHead+"[reflection]\n[gate]\n"+c.src+"\n"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
