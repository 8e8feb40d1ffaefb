package progress

import (
	"strings"

	"rollout/functions/status"
	"rollout/shared/figures"
)

// FormatUndelivered says in a sentence which events about a run do not arrive.
// Example: "1 event was given up (webhook: example.com answered 410)".
func FormatUndelivered(u status.Undelivered) string {
	var parts []string
	if u.Waiting > 0 {
		parts = append(parts, figures.OfMany(u.Waiting, "event is sent again", "events are sent again"))
	}
	if u.GivenUp > 0 {
		parts = append(parts, figures.OfMany(u.GivenUp, "event was given up", "events were given up"))
	}
	if u.Dropped > 0 {
		parts = append(parts, figures.OfMany(u.Dropped, "event was left out", "events were left out"))
	}
	return strings.Join(parts, ", ") + " (" + u.To + ": " + u.Problem + ")"
}
