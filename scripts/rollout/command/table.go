package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/identity"
	"rollout/shared/figures"
	"rollout/shared/record"
)

// nameColumns is the maximum width of a run's name in a table.
const nameColumns = 28

var runColumns = []string{"RUN", "NAME", "PHASE", "ITEMS", "DONE", "FAILED", "RATE", "ETA", "AGE"}

const phaseColumn = 2

const (
	idColumns = 26 // width of a run id
	shortID   = 10 // characters of a run id on a narrow terminal, enough to name the run
)

// runLayouts are the ways to draw the table of runs on a narrow terminal. The first that fits is taken.
var runLayouts = []runLayout{
	{leastBar, nil}, {leastBar, []string{"AGE"}}, {leastBar, []string{"AGE", "ITEMS"}},
	{leastBar, []string{"AGE", "ITEMS", "FAILED"}}, {0, []string{"AGE", "ITEMS", "FAILED"}},
	{0, []string{"AGE", "ITEMS", "FAILED", "RATE"}},
}

// runLayout is how the table of runs is drawn: with bars of at most that width, and without the dropped columns.
type runLayout struct {
	bars int
	drop []string
}

// Widths of bars in the table of runs.
const (
	leastBar = 8
	mostBar  = 60
)

// runs formats a table of all runs, the open ones first. On a live screen these have bars as wide as there is room; of
// the ended ones it shows those that ended meanwhile, and the number of the others. It returns the columns that it
// leaves out.
func (s screen) runs() (text string, dropped []string) {
	shown, rest := s.shownRuns()
	bars := 0
	if s.live && len(shown) > 0 && !shown[0].Phase.Ended() {
		bars = 12
	}
	table := func(id, name, bars int) string { return s.runTable(shown, id, name, bars, dropped) }
	text = table(idColumns, nameColumns, bars)
	if s.columns > 0 {
		id, name := idColumns, nameColumns
		for i := 0; terminal.Widest(text) > s.columns && i < len(runLayouts); i++ {
			id, name, bars, dropped = distinctID(shown), nameColumns/2, min(bars, runLayouts[i].bars), runLayouts[i].drop
			text = table(id, name, bars)
		}
		if room := s.columns - terminal.Widest(text); bars > 0 && room > 0 {
			text = table(id, name, min(mostBar, bars+room))
		}
	}
	if len(shown) == 0 {
		text = ""
	}
	return text + rest, dropped
}

// distinctID returns how many characters of the runs' ids name each of them, at least shortID.
func distinctID(runs []status.Status) int {
	for n := shortID; n < idColumns; n++ {
		begin := map[identity.RunID]bool{}
		for _, r := range runs {
			begin[r.Run[:min(len(r.Run), n)]] = true
		}
		if len(begin) == len(runs) {
			return n
		}
	}
	return idColumns
}

// recentlyEnded is how many ended runs a live screen shows when no run is open.
const recentlyEnded = 5

// shownRuns returns the runs of the table, and a line about the others.
func (s screen) shownRuns() (shown []status.Status, rest string) {
	if !s.live {
		return openFirst(s.Runs), s.moreEnded()
	}
	watched := map[identity.RunID]bool{}
	for _, r := range s.watched[max(0, len(s.watched)-maxNotes):] {
		watched[r.Run] = true
	}
	var ended []status.Status
	for _, r := range s.Runs {
		if r.Phase.Ended() {
			ended = append(ended, r)
			continue
		}
		shown = append(shown, r)
	}
	open := len(shown)
	byPhase := map[string]int{}
	for _, r := range ended {
		if watched[r.Run] || open == 0 && len(shown) < recentlyEnded {
			shown = append(shown, r)
			continue
		}
		byPhase[progress.FormatPhase(r.Phase)]++
	}
	defer func() { rest += s.moreEnded() }()
	if others := open + len(ended) - len(shown); others > 0 {
		var parts []string
		for _, phase := range slices.Sorted(maps.Keys(byPhase)) {
			parts = append(parts, figures.Count(byPhase[phase])+" "+phase)
		}
		rest = s.paragraph("ended before: " + figures.Count(others) + " (" + strings.Join(parts, ", ") + ")")
	}
	return shown, rest
}

// openFirst returns the runs that have not ended, then the others.
func openFirst(runs []status.Status) []status.Status {
	out := slices.Clone(runs)
	slices.SortStableFunc(out, func(a, b status.Status) int {
		switch {
		case a.Phase.Ended() == b.Phase.Ended():
			return 0
		case b.Phase.Ended():
			return -1
		}
		return 1
	})
	return out
}

// moreEnded are lines about the ended runs that the overview leaves out, and about those that have expired.
func (s screen) moreEnded() (text string) {
	switch {
	case s.one:
		return ""
	case s.More > 0 && s.name != "":
		text = s.paragraph(figures.Of(s.More, "more run") + " of that name ended earlier: add --all")
	case s.More > 0:
		text = s.paragraph(s.withFlags(figures.Of(s.More, "more run") + " ended earlier: see `rollout status --all`"))
	}
	if s.Expired > 0 && s.name == "" {
		text += s.paragraph(figures.Of(s.Expired, "older run") + " expired: see the files in " + s.path(record.RunsPrefix))
	}
	return text
}

// runTable formats the table with ids and names of at most that width, bars of that width (0 is none), and without the
// dropped columns.
func (s screen) runTable(runs []status.Status, id, name, bars int, drop []string) string {
	keep := func(row []string) (out []string) {
		for i, cell := range row {
			if !slices.Contains(drop, runColumns[i]) {
				out = append(out, cell)
			}
		}
		return out
	}
	rows := [][]string{keep(runColumns)}
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = progress.SanitizeLine(r.Name, maxName)
	}
	names = terminal.ShortenApart(names, name)
	for i, r := range runs {
		p := s.pace(r)
		rows = append(rows, keep([]string{
			string(r.Run[:min(len(r.Run), id)]),
			names[i],
			progress.FormatPhase(r.Phase),
			progress.Count(r.Items.Total),
			s.done(r, bars),
			progress.Count(r.Items.AtFault()),
			progress.FormatRate(p.Rate),
			progress.FormatETA(p.ETASeconds),
			progress.FormatDuration(s.now.Sub(r.CreatedAt)),
		}))
	}
	done := slices.Index(rows[0], "DONE")
	return terminal.Table(rows, s.colours, func(row, column int, cell string) string {
		switch {
		case column == phaseColumn && allFailed(runs[row-1]):
			return s.colours.In(terminal.Red, cell)
		case column == phaseColumn:
			return progress.ColourPhase(s.colours, runs[row-1].Phase, cell)
		case column == done && allFailed(runs[row-1]):
			return s.colours.In(terminal.Red, cell)
		}
		return cell
	})
}

// done formats how far a run is, with a bar unless its width is 0.
func (s screen) done(r status.Status, bars int) string {
	done, total := progress.DoneAndTotal(r)
	text := progress.Percent(done, total)
	if allFailed(r) {
		text += " failed"
	}
	if bars > 0 && !r.Phase.Ended() {
		failed := uint64(0)
		if r.Training == nil {
			failed = r.Items.AtFault()
		}
		text = terminal.Bar(done, failed, total, bars) + " " + text
	}
	return text
}

// allFailed reports whether a run has rows and none of them is an answer.
func allFailed(r status.Status) bool {
	return r.Training == nil && r.Items.AtFault() > 0 && r.Items.AtFault() == r.Items.Processed()
}

// maxName bounds a name before it is shortened.
const maxName = 1000

// shorten shortens a name in its middle.
func shorten(name string, columns int) string {
	return terminal.Shorten(progress.SanitizeLine(name, maxName), columns)
}

// pace returns the pace that a watcher measured, else the one in the status.
func (s screen) pace(r status.Status) progress.Pace {
	if r.Training != nil { // a training has one item, so its item rate is meaningless
		return progress.Pace{ETASeconds: r.ETASeconds}
	}
	if s.silent(r) {
		return progress.Pace{}
	}
	if p, ok := s.paces[r.Run]; ok {
		return p
	}
	return progress.Pace{Rate: r.Rate, ETASeconds: r.ETASeconds}
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
		name, what := "retry of", parent.Selection.String()
		if parent.Amend != nil {
			name, what = "amends", parent.Amend.String()
		}
		line(name, "%s (%s%s)", parent.Run, progress.SanitizeLine(what, 400), set)
	}
	line("phase", "%s", progress.ColourPhase(s.colours, r.Phase, progress.FormatPhase(r.Phase)))
	if r.Message != "" && len(r.Blockers) == 0 {
		line("reason", "%s", progress.SanitizeLine(r.Message, 1000))
	}
	for _, b := range r.Blockers {
		line("blocked by", "%s", s.withFlags(progress.SanitizeLine(progress.FormatBlocker(b), 1000)))
	}
	if r.Undelivered != nil {
		line("not told", "%s", progress.SanitizeLine(progress.FormatUndelivered(*r.Undelivered), 1000))
	}
	if s.live && !r.Phase.Ended() {
		width := 50
		if s.columns > 0 {
			width = max(12, min(100, s.columns-labelColumns-12))
		}
		line("", "%s", s.done(r, width))
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
	for n, text := range formatInFlight(s.Trials, s.now) {
		name := ""
		if n == 0 {
			name = "in flight"
		}
		line(name, "%s", text)
	}
	uncommitted := ""
	if r.Items.Uncommitted > 0 {
		uncommitted = fmt.Sprintf(", %s of them in shards that are not done", progress.Count(r.Items.Uncommitted))
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
	line("shards", "%s done, %s running, %s dispatched, %s planned", figures.Count(r.Shards.Done),
		figures.Count(r.Shards.Running), figures.Count(r.Shards.Dispatched), figures.Count(r.Shards.Total))
	line("tokens", "%s", progress.FormatTokens(r.Tokens))
	if text := formatCost(r); text != "" {
		line("cost", "%s", text)
	}
	if text := formatBudgets(r.Budgets); text != "" {
		line("budget", "%s", text)
	}
	rate := progress.FormatRate(p.Rate)
	if t := progress.FormatTokenRate(r.TokenRate); t != "" && !s.silent(r) {
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
	return terminal.Fact(label, labelColumns, text, s.columns)
}

// moment formats a time and how long ago it was.
func (s screen) moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339) + " (" + progress.FormatDuration(s.now.Sub(*t)) + " ago)"
}
