package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/run"
)

// nameColumns is the maximum width of a run's name in a table.
const nameColumns = 28

// palette colours text if it is true, and leaves it unchanged if it is false.
type palette bool

// palette returns the palette for Out. The environment variable NO_COLOR disables colours.
func (e *Env) palette() palette {
	return palette(progress.SupportsANSI(e.Out) && e.Getenv("NO_COLOR") == "")
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	bold   = "1"
)

func (p palette) in(colour, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p palette) phase(ph run.Phase, text string) string {
	switch ph {
	case run.Completed:
		return p.in(green, text)
	case run.CompletedWithErrors, run.Pausing, run.Paused, run.Interrupted, run.Ending:
		return p.in(yellow, text)
	case run.Failed, run.Stopped, run.Expired, run.OverBudget:
		return p.in(red, text)
	}
	return p.in(cyan, text)
}

func (p palette) worker(w status.WorkerStatus, text string) string {
	switch {
	case !w.Alive || w.Engine == status.EngineAway:
		return p.in(red, text)
	case workerState(w) == "ready", workerState(w) == "training":
		return p.in(green, text)
	}
	return p.in(yellow, text)
}

var runColumns = []string{"RUN", "NAME", "PHASE", "ITEMS", "DONE", "FAILED", "RATE", "ETA", "AGE"}

const phaseColumn = 2

const (
	idColumns = 26 // width of a run id
	shortID   = 10 // characters of a run id on a narrow terminal, enough to name the run
)

// runs formats a table of all runs.
func (s screen) runs() string {
	wide := s.runTable(idColumns, nameColumns)
	if s.columns == 0 || widest(wide) <= s.columns {
		return wide
	}
	return s.runTable(shortID, nameColumns/2)
}

// runTable formats the table with ids and names of at most that width.
func (s screen) runTable(id, name int) string {
	rows := [][]string{runColumns}
	for _, r := range s.Runs {
		p := s.pace(r)
		done, total := progress.DoneAndTotal(r)
		percent := progress.Percent(done, total)
		if s.live && !r.Phase.Ended() {
			percent = bar(done, total, 12) + " " + percent
		}
		rows = append(rows, []string{
			string(r.Run[:min(len(r.Run), id)]),
			progress.SanitizeLine(r.Name, name),
			progress.FormatPhase(r.Phase),
			progress.Count(r.Items.Total),
			percent,
			progress.Count(r.Items.AtFault()),
			progress.FormatRate(p.Rate),
			progress.FormatETA(p.ETASeconds),
			progress.FormatDuration(s.now.Sub(r.CreatedAt)),
		})
	}
	return s.table(rows, func(row, column int, cell string) string {
		if column != phaseColumn {
			return cell
		}
		return s.colours.phase(s.Runs[row-1].Phase, cell)
	})
}

// pace returns the pace that a watcher measured, else the one in the status.
func (s screen) pace(r status.Status) progress.Pace {
	if r.Training != nil { // a training has one item, so its item rate is meaningless
		return progress.Pace{ETASeconds: r.ETASeconds}
	}
	if p, ok := s.paces[r.Run]; ok {
		return p
	}
	return progress.Pace{Rate: r.Rate, ETASeconds: r.ETASeconds}
}

// table formats rows in aligned columns. The first row is the header. colour may colour a padded cell.
func (s screen) table(rows [][]string, colour func(row, column int, cell string) string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 {
				cell = runewidth.FillRight(cell, widths[i])
			}
			if n == 0 {
				cell = s.colours.in(bold, cell)
			} else {
				cell = colour(n, i, cell)
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// widest returns the width of the longest line, without colours.
func widest(text string) (n int) {
	for line := range strings.Lines(text) {
		n = max(n, runewidth.StringWidth(withoutColours(strings.TrimSuffix(line, "\n"))))
	}
	return n
}

// bar draws a share of all as a bar of the given width: "[====>   ]".
func bar(part, all uint64, width int) string {
	inner := width - 2
	full := 0
	if all > 0 {
		full = int(min(part, all) * uint64(inner) / all)
	}
	head := ""
	if full > 0 && full < inner {
		head, full = ">", full-1
	}
	return "[" + strings.Repeat("=", full) + head + strings.Repeat(" ", inner-full-len(head)) + "]"
}

// labelColumns is the width of the labels of facts.
const labelColumns = 12

// details formats one run, one fact per line.
func (s screen) details(r status.Status) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		b.WriteString(s.fact(name, fmt.Sprintf(format, args...)))
	}
	p := s.pace(r)
	line("run", "%s", r.Run)
	line("name", "%s", progress.SanitizeLine(r.Name, 128))
	if parent := r.Parent; parent != nil {
		set := ""
		if len(parent.Set) > 0 {
			set = "; set " + progress.SanitizeLine(strings.Join(parent.Set, ", "), 400)
		}
		line("retry of", "%s (%s%s)", parent.Run, progress.SanitizeLine(parent.Selection.String(), 400), set)
	}
	line("phase", "%s", s.colours.phase(r.Phase, progress.FormatPhase(r.Phase)))
	if r.Message != "" && len(r.Blockers) == 0 {
		line("reason", "%s", progress.SanitizeLine(r.Message, 1000))
	}
	for _, b := range r.Blockers {
		line("blocked by", "%s", s.withFlags(progress.SanitizeLine(progress.FormatBlocker(b), 1000)))
	}
	if s.live && !r.Phase.Ended() {
		width := 50
		if s.columns > 0 {
			width = max(12, min(50, s.columns-labelColumns-6))
		}
		done, total := progress.DoneAndTotal(r)
		line("", "%s %s", bar(done, total, width), progress.Percent(done, total))
	}
	if t := r.Training; t != nil {
		line("training", "%s", progress.FormatTraining(r))
		if t.Snapshot != "" {
			line("snapshot", "%s, at step %s", t.Snapshot, progress.Count(uint64(max(0, t.SnapshotStep))))
		}
	}
	if r.Rollout != nil {
		line("tickets", "%s", progress.FormatRollout(*r.Rollout))
		for _, text := range progress.FormatMissions(*r.Rollout) {
			line("guidance", "%s", text)
		}
	}
	uncommitted := ""
	if r.Items.Uncommitted > 0 {
		uncommitted = fmt.Sprintf(", %s of them not committed yet", progress.Count(r.Items.Uncommitted))
	}
	line("items", "%s of %s (%s)%s", progress.Count(r.Items.Processed()), progress.Count(r.Items.Total),
		progress.Percent(r.Items.Processed(), r.Items.Total), uncommitted)
	line("failed", "%s", progress.FormatFailed(r))
	if r.Items.Unanswered > 0 {
		line("unanswered", "%s", progress.FormatUnanswered(r))
	}
	for _, role := range progress.OtherRoles(r) {
		line("role", "%s", progress.FormatRole(role))
	}
	line("shards", "%d done, %d running, %d dispatched, %d planned",
		r.Shards.Done, r.Shards.Running, r.Shards.Dispatched, r.Shards.Total)
	line("tokens", "%s", progress.FormatTokens(r.Tokens))
	rate := progress.FormatRate(p.Rate)
	if t := progress.FormatTokenRate(r.TokenRate); t != "" {
		rate += ", " + t
	}
	line("rate", "%s", rate)
	if !r.Phase.Ended() {
		line("eta", "%s", progress.FormatETA(p.ETASeconds))
	}
	line("model", "%s", progress.SanitizeLine(r.Model, 200))
	line("submitted", "%s", s.moment(&r.CreatedAt))
	line("started", "%s", s.moment(r.StartedAt))
	if r.LastRowAt != nil {
		line("last answer", "%s", s.moment(r.LastRowAt))
	}
	if r.EndedAt != nil {
		line("ended", "%s", s.moment(r.EndedAt))
	} else if r.Deadline != nil {
		line("deadline", "%s", r.Deadline.Format(time.RFC3339))
	}
	if r.Phase.Ended() && r.Items.Total > 0 {
		line("completions", "%s", s.path(r.Outputs))
		line("errors", "%s", s.path(r.Errors))
	}
	return b.String()
}

// fact formats a label and a text, wrapped to the width of the terminal.
func (s screen) fact(label, text string) string {
	lines := []string{text}
	if width := s.columns - labelColumns; s.columns > 0 && !strings.Contains(text, "\x1b[") {
		lines = wrap(text, max(20, width))
	}
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(&b, "%-*s%s\n", labelColumns, label, l)
	}
	return b.String()
}

// wrap breaks a text at spaces, so that only lines of a single long word are wider than columns.
func wrap(text string, columns int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && runewidth.StringWidth(line)+1+runewidth.StringWidth(word) > columns {
			lines = append(lines, line)
			line = word
			continue
		}
		if line != "" || word == "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// moment formats a time and how long ago it was.
func (s screen) moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339) + " (" + progress.FormatDuration(s.now.Sub(*t)) + " ago)"
}
