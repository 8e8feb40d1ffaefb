package observe

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"rollout/shared/fault"
)

// Format is the format of log lines. Example: "text".
type Format string

// Formats of log lines.
const (
	Text Format = "text" // for people
	JSON Format = "json" // for machines
)

// ParseFormat parses "text" or "json". Other values are Invalid.
func ParseFormat(s string) (Format, error) {
	switch f := Format(strings.ToLower(s)); f {
	case Text, JSON:
		return f, nil
	}
	return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("unknown log format %q", s), Remedy: "use text or json"}
}

// ParseLevel parses "debug", "info", "warn" or "error". Other values are Invalid.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn", "warning":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("unknown log level %q", s),
		Remedy: "use debug, info, warn or error"}
}

// NewLogger returns a logger that writes lines of the level and above to w, one Write per
// line. The lines have the ids of their context; see AddContextIDs. The logger removes
// secrets, see Redact, and limits repeated errors, see Throttle.
func NewLogger(w io.Writer, f Format, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if f == JSON {
		return slog.New(AddContextIDs(Throttle(Redact(slog.NewJSONHandler(w, o)))))
	}
	o.ReplaceAttr = shortTime
	return slog.New(AddContextIDs(Throttle(Redact(slog.NewTextHandler(w, o)))))
}

// clockOnly is the format of the time of a text line. It omits the date, which the reader
// of a terminal knows.
const clockOnly = "15:04:05.000"

func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().Format(clockOnly))
	}
	return a
}
