package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"rollout/functions/api"
	"rollout/scripts/rollout/progress"
	"rollout/shared/engine/run"
)

// nameColumns bounds a run's name in a table.
const nameColumns = 28

// palette colours text, if it is true.
type palette bool

func (p palette) phase(ph run.Phase, text string) string {
	if !p {
		return text
	}
	colour := "36" // cyan: under way
	switch ph {
	case run.Completed:
		colour = "32" // green
	case run.CompletedWithErrors, run.Pausing, run.Paused, run.Interrupted, run.Ending:
		colour = "33" // yellow
	case run.Failed, run.Stopped, run.Expired, run.OverBudget:
		colour = "31" // red
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p palette) bold(text string) string {
	if !p {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// shown is a run with the pace that its watcher knows.
type shown struct {
	api.Status
	progress.Pace
}

// at is what the status itself says, for who looks once.
func at(s api.Status) shown {
	return shown{s, progress.Pace{Rate: s.Rate, ETASeconds: s.ETASeconds}}
}

var columns = [...]string{"RUN", "NAME", "PHASE", "ITEMS", "DONE", "FAILED", "RATE", "ETA", "AGE"}

const phaseColumn = 2

// table renders the runs, one a line, under a header.
func table(runs []shown, now time.Time, p palette) string {
	rows := [][]string{columns[:]}
	for _, r := range runs {
		rows = append(rows, []string{
			string(r.Run), progress.Plain(r.Name, nameColumns), progress.PhaseWords(r.Phase), progress.Count(r.Items.Total),
			progress.Percent(r.Items.Settled(), r.Items.Total), progress.Count(r.Items.Failed),
			progress.RateWords(r.Pace.Rate), progress.ETAWords(r.Pace.ETASeconds), progress.Span(now.Sub(r.CreatedAt)),
		})
	}
	var widths [len(columns)]int
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			padded := runewidth.FillRight(cell, widths[i])
			if i == len(row)-1 {
				padded = cell
			}
			switch {
			case n == 0:
				padded = p.bold(padded)
			case i == phaseColumn:
				padded = p.phase(runs[n-1].Phase, padded)
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(padded)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// details renders one run, a fact a line; path says where people find an
// object of the bucket.
func details(r shown, now time.Time, p palette, path func(key string) string) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("run", "%s", r.Run)
	line("name", "%s", progress.Plain(r.Name, 128))
	line("phase", "%s", p.phase(r.Phase, progress.PhaseWords(r.Phase)))
	if r.Message != "" {
		line("because", "%s", progress.Plain(r.Message, 1000))
	}
	line("items", "%s of %s (%s)", progress.Count(r.Items.Settled()), progress.Count(r.Items.Total),
		progress.Percent(r.Items.Settled(), r.Items.Total))
	line("failed", "%s", progress.FailedWords(r.Status))
	line("shards", "%d done, %d running, %d dispatched, %d planned", r.Shards.Done, r.Shards.Running, r.Shards.Dispatched, r.Shards.Total)
	line("tokens", "%s", progress.TokenWords(r.Tokens))
	line("rate", "%s", progress.RateWords(r.Pace.Rate))
	if !r.Phase.Ended() {
		line("eta", "%s", progress.ETAWords(r.Pace.ETASeconds))
	}
	line("model", "%s", progress.Plain(r.Model, 200))
	line("submitted", "%s", moment(&r.CreatedAt, now))
	line("started", "%s", moment(r.StartedAt, now))
	if r.EndedAt != nil {
		line("ended", "%s", moment(r.EndedAt, now))
	}
	if r.Phase.Ended() && r.Items.Total > 0 {
		line("completions", "%s", path(r.Outputs))
		line("errors", "%s", path(r.Errors))
	}
	return b.String()
}

// moment renders a time and how long ago it was.
func moment(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339) + " (" + progress.Span(now.Sub(*t)) + " ago)"
}
