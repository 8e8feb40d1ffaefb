package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"rollout/shared/fault"
)

// parseSince returns the time that a text of --since means; zero for "".
func parseSince(text string, now time.Time) (time.Time, error) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch text {
	case "":
		return time.Time{}, nil
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	if d, err := parseDays(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("--since %.40q is not a time", text),
		Remedy: "use a time like 2026-03-01 or 2026-03-01T12:00:00Z, a duration like 24h or 2d, or yesterday"}
}

// parseDays parses a duration from 0 on that may begin with days: "2d", "1d12h", "90m".
func parseDays(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	var days time.Duration
	if number, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, err
		}
		if days = time.Duration(n) * day; rest == "" {
			return days, nil
		}
		text = rest
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("a duration is not negative")
	}
	return days + d, err
}
