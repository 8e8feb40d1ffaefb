package observe

import "log/slog"

// Event is an event for logs, the event stream and metrics. All implementations are in
// this package. Each has fixed fields in a fixed order. Events only inform: no part of
// rollout acts on them.
type Event interface {
	// EventName returns the name of the event in package events. Example:
	// "shard_claimed".
	EventName() string
	// Level returns the level of the event's log line.
	Level() slog.Level
	// Attrs returns the fields of the event.
	Attrs() []slog.Attr
}

// unlogged is the level of events that are too frequent for a log.
const unlogged = slog.LevelDebug - 4
