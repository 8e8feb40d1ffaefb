package status

import (
	"maps"
	"slices"

	"rollout/shared/record"
)

// Undelivered are events about a run that a destination does not take.
type Undelivered struct {
	Waiting int `json:"waiting"`  // that are sent again
	GivenUp int `json:"given_up"` // that were sent for a day, or refused for good
	// Dropped counts those that were left out because too many waited.
	Dropped int    `json:"dropped,omitempty"`
	To      string `json:"to"`      // the destination. Example: "webhook"
	Problem string `json:"problem"` // of the latest attempt
}

// undelivered returns the events of the first destination that fails; nil if none does. An
// event that no attempt failed to deliver is not late.
func undelivered(n record.Notifications) *Undelivered {
	for _, to := range slices.Sorted(maps.Keys(n.Deliveries)) {
		d := n.Deliveries[to]
		u := Undelivered{GivenUp: d.GivenUp, Dropped: n.Dropped, To: to, Problem: d.Problem}
		if d.Attempts > 0 {
			u.Waiting = len(n.After(to))
		}
		if u.Waiting > 0 || u.GivenUp > 0 {
			return &u
		}
	}
	return nil
}
