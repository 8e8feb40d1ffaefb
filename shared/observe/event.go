package observe

import "log/slog"

// Event is something that happened, told to logs, the event stream and
// metrics alike. The types of this package are all there are; each has fixed
// fields, in a fixed order. No part of rollout acts on them.
type Event interface {
	// EventName is its name in package events. Example: "shard_claimed".
	EventName() string
	// Level is that of its log line.
	Level() slog.Level
	// Attrs are its fields.
	Attrs() []slog.Attr
}

// unlogged is the level of events that are too many for a log.
const unlogged = slog.LevelDebug - 4
