package machine

import (
	"strings"
	"time"
)

// Limits of one request to CloudWatch Logs: 1 MiB and 10,000 events. A line counts with 26
// bytes more.
const (
	maxEvents     = 500
	maxEventBytes = 1024
)

// logEvent is an event of CloudWatch Logs.
type logEvent struct {
	Timestamp int64  `json:"timestamp"` // milliseconds since 1970
	Message   string `json:"message"`
}

// logEvents returns the last lines of a log as events of that time. The lines have their own
// times in their text. Empty lines are left out: the service refuses them.
func logEvents(log string, at time.Time) []logEvent {
	out := []logEvent{}
	for line := range strings.Lines(strings.ToValidUTF8(log, "?")) {
		if line = strings.TrimSpace(line); line != "" {
			line = strings.ToValidUTF8(line[:min(len(line), maxEventBytes)], "") // a letter that is cut goes
			out = append(out, logEvent{at.UnixMilli(), line})
		}
	}
	return out[max(0, len(out)-maxEvents):]
}
