package progress

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"

	"rollout/functions/status"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/run"
	"rollout/shared/figures"
)

// OtherRoles returns the roles of the run beyond the answer, as far as they are planned: further models of a run of
// trials, and what judges are asked after all answers.
func OtherRoles(s status.Status) []status.Role {
	other := slices.Clone(s.Roles[min(1, len(s.Roles)):])
	return slices.DeleteFunc(other, func(r status.Role) bool { return r.Items == 0 })
}

// judged returns how many items of the roles without output have a row, of how many.
func judged(s status.Status) (done, of uint64) {
	for _, r := range OtherRoles(s) {
		if !r.Output {
			done, of = done+r.Committed(), of+r.Items
		}
	}
	return done, of
}

// FormatRole formats the progress of a role: "judge-style: 40 of 80 (50%), 2 failed, by wise in pool
// judges".
func FormatRole(r status.Role) string {
	text := fmt.Sprintf("%s: %s of %s (%s)", r.Name, Count(r.Committed()), Count(r.Items), Percent(r.Committed(), r.Items))
	if r.Failed > 0 {
		text += ", " + Count(r.Failed) + " failed"
	}
	return text + fmt.Sprintf(", by %s in pool %s", SanitizeLine(r.Model, 200), r.Pool)
}

// FormatPhase formats a phase: "completed with errors".
func FormatPhase(p run.Phase) string { return strings.ReplaceAll(string(p), "_", " ") }

// ColourPhase colours a text about a phase: green for success, yellow for what the user should know, red for failure.
func ColourPhase(p terminal.Palette, ph run.Phase, text string) string {
	switch ph {
	case run.Completed:
		return p.In(terminal.Green, text)
	case run.CompletedWithErrors, run.Pausing, run.Paused, run.Interrupted, run.Ending:
		return p.In(terminal.Yellow, text)
	case run.Failed, run.Stopped, run.Expired, run.OverBudget:
		return p.In(terminal.Red, text)
	}
	return p.In(terminal.Cyan, text)
}

// Count formats a count: "1,234".
func Count(n uint64) string { return figures.Count(n) }

// FormatRate formats items per second: "12.5/s". It returns "-" if the rate is unknown.
func FormatRate(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return figures.Short(*rate) + "/s"
}

// FormatTokenRate formats tokens per second: "1,900 tokens/s". It returns "" if the rate is unknown.
func FormatTokenRate(rate *float64) string {
	if rate == nil || *rate <= 0 {
		return ""
	}
	return figures.Whole(*rate) + " tokens/s"
}

// FormatBlocker formats what blocks a run, with the remedy.
func FormatBlocker(b status.Blocker) string { return WithRemedy(b.Text, b.Remedy) }

// WithRemedy adds a remedy to a text: in brackets, unless one of them has some already.
func WithRemedy(text, remedy string) string {
	switch {
	case remedy == "":
		return text
	case strings.HasSuffix(text, ")") || strings.Contains(remedy, "("):
		return text + "; " + remedy
	}
	return text + " (" + remedy + ")"
}

// maxETA is the largest estimate that is displayed.
const maxETA = 100 * 24 * time.Hour

// FormatETA formats an estimated time, rounded up to whole seconds: "1m05s". It returns "-" if the estimate is unknown.
func FormatETA(seconds *float64) string {
	if seconds == nil || *seconds < 0 || *seconds > maxETA.Seconds() {
		return "-"
	}
	return FormatDuration(time.Duration(math.Ceil(*seconds)) * time.Second)
}

// FormatDuration formats a duration; see figures.Duration.
func FormatDuration(d time.Duration) string { return figures.Duration(d) }

// FormatElapsed formats a short duration; see figures.Elapsed.
func FormatElapsed(d time.Duration) string { return figures.Elapsed(d) }

// Percent formats a share; see figures.Percent.
func Percent(part, all uint64) string { return figures.Percent(part, all) }

// SanitizeLine makes untrusted text safe to print on one line of a terminal: it replaces control characters, which
// could control the terminal, with spaces, and truncates the text to a width of columns.
func SanitizeLine(s string, columns int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return runewidth.Truncate(strings.TrimSpace(s), columns, "…")
}

// DoneAndTotal returns a run's processed items and its items, or of a training the steps done and all steps.
func DoneAndTotal(s status.Status) (done, total uint64) {
	if t := s.Training; t != nil {
		return uint64(max(0, t.Step)), uint64(max(0, t.Steps))
	}
	return s.Items.Processed(), s.Items.Total
}

// FormatTraining formats the progress of a training: "step 120/1,000 12%, loss 2.31, 5,400 tokens/s, ETA 45s".
func FormatTraining(s status.Status) string {
	done, total := DoneAndTotal(s)
	facts := trainingFacts(s)
	facts[0] = fmt.Sprintf("step %s/%s %s", Count(done), Count(total), Percent(done, total))
	return strings.Join(facts, ", ")
}

// trainingFacts returns the progress of a training fact by fact, first the step.
func trainingFacts(s status.Status) []string {
	done, total := DoneAndTotal(s)
	facts := []string{fmt.Sprintf("step %s of %s", Count(done), Count(total))}
	if l := s.Training.Loss; l != nil {
		facts = append(facts, "loss "+strconv.FormatFloat(*l, 'g', 4, 64))
	}
	if rate := FormatTokenRate(s.Training.TokensPerSecond); rate != "" {
		facts = append(facts, rate)
	}
	if s.ETASeconds != nil {
		facts = append(facts, "ETA "+FormatETA(s.ETASeconds))
	}
	return facts
}

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
