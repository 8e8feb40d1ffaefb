package progress

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/mattn/go-runewidth"

	"rollout/functions/api"
	"rollout/shared/core/run"
)

// FormatPhase renders a phase for people: "completed with errors".
func FormatPhase(p run.Phase) string { return strings.ReplaceAll(string(p), "_", " ") }

// Count renders a count: "1,234".
func Count(n uint64) string { return humanize.Comma(int64(min(n, 1<<62))) }

// FormatRate renders items per second: "12.5/s"; "-" if it is not known.
func FormatRate(rate *float64) string {
	switch {
	case rate == nil:
		return "-"
	case *rate == 0:
		return "0/s"
	case *rate >= 100:
		return humanize.Comma(int64(*rate)) + "/s"
	case *rate >= 1:
		return fmt.Sprintf("%.1f/s", *rate)
	}
	return fmt.Sprintf("%.2g/s", *rate)
}

// FormatTokenRate renders tokens per second: "1,900 tokens/s"; "" if it is not
// known.
func FormatTokenRate(rate *float64) string {
	if rate == nil || *rate <= 0 {
		return ""
	}
	return humanize.Comma(int64(*rate)) + " tokens/s"
}

// FormatBlocker renders what holds a run up, with its remedy in brackets.
func FormatBlocker(h api.Blocker) string {
	if h.Remedy == "" {
		return h.Text
	}
	return h.Text + " (" + h.Remedy + ")"
}

// maxETA is where an estimate stops to mean anything.
const maxETA = 100 * 24 * time.Hour

// FormatETA renders an estimate in whole seconds: "1m05s"; "-" if it is not
// known.
func FormatETA(seconds *float64) string {
	if seconds == nil || *seconds < 0 || *seconds > maxETA.Seconds() {
		return "-"
	}
	return FormatDuration(time.Duration(math.Ceil(*seconds)) * time.Second)
}

// FormatDuration renders a duration in two units at most: "850ms", "42s", "3m05s",
// "2h10m", "3d04h".
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", s/(24*3600), s%(24*3600)/3600)
}

// FormatElapsed renders how long something takes, with tenths below ten seconds:
// "0.3s", "42s".
func FormatElapsed(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", max(0, d).Seconds())
	}
	return FormatDuration(d)
}

// Percent renders a share, rounded down so that 100 % means all.
func Percent(part, all uint64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", min(100, part*100/all))
}

// SanitizeLine makes text from elsewhere fit for one line of a terminal: control
// characters, which could move the cursor or worse, become spaces; what is
// wider than columns is cut.
func SanitizeLine(s string, columns int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return runewidth.Truncate(strings.TrimSpace(s), columns, "…")
}
