package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/figures"
)

// screen formats an overview as text for a terminal or a file.
type screen struct {
	api.Overview
	one       bool            // the overview is of one run
	live      bool            // the screen is redrawn repeatedly, so it shows bars
	watched   []status.Status // runs that have ended while the screen was live
	paces     map[identity.RunID]progress.Pace
	now       time.Time
	columns   int // width of the terminal; 0 is unlimited
	colours   terminal.Palette
	path      func(key string) string  // where the user finds an object of the bucket
	withFlags func(text string) string // see withLocationFlags
}

// body formats the tables, or the details of one run.
func (s screen) body() string {
	if len(s.Runs) == 0 && !s.live {
		return s.withFlags(noRuns)
	}
	parts := []string{}
	switch {
	case len(s.Runs) == 0:
		parts = append(parts, s.withFlags(noRuns))
	case s.one:
		parts = append(parts, s.details(s.Runs[0]))
	default:
		parts = append(parts, s.runs())
	}
	if s.live || s.anyOpen() {
		for _, part := range []string{s.workers(), s.servers(), s.limits(), s.queues()} {
			if part != "" {
				parts = append(parts, part)
			}
		}
	}
	return strings.Join(parts, "\n")
}

const noRuns = "no runs yet: start one with `rollout submit FILE`\n"

// lines returns the lines of a terminal with so many rows; 0 is unlimited. It leaves out lines that do not fit, because
// lines that scrolled away could not be redrawn. Sentences are wrapped; tables that are too wide are cut.
func (s screen) lines(rows int) []string {
	lines := strings.Split(strings.TrimSuffix(s.body(), "\n"), "\n")
	for i, note := range s.notes() {
		if i == 0 {
			lines = append(lines, "")
		}
		lines = append(lines, s.sentence(note)...)
	}
	for i, l := range lines {
		lines[i] = terminal.Fit(l, s.columns)
	}
	if rows > 2 && len(lines) >= rows {
		lines = append(lines[:rows-2:rows-2],
			terminal.Fit("… "+figures.Of(len(lines)-rows+2, "more line")+": enlarge the terminal, or name one run", s.columns))
	}
	return lines
}

// sentence wraps a text to the width of the terminal.
func (s screen) sentence(text string) []string { return terminal.Sentence(text, s.columns) }

// silent reports whether no worker that the run needs lives, so that an earlier rate says nothing on a live screen.
func (s screen) silent(r status.Status) bool {
	return s.live && r.Phase == run.Running && !slices.ContainsFunc(s.Workers, func(w status.WorkerStatus) bool {
		return w.Alive && slices.Contains(r.Pools(), w.Pool)
	})
}

func (s screen) anyOpen() bool {
	for _, r := range s.Runs {
		if !r.Phase.Ended() {
			return true
		}
	}
	return false
}

// maxNotes limits the notes about runs, and the notes about uploads.
const maxNotes = 10

// notes returns lines about what blocks runs, and about uploads that did not become runs. It returns none for the
// screen of one run, whose details contain them.
func (s screen) notes() (out []string) {
	if s.one {
		return nil
	}
	for _, r := range s.Runs {
		name := shorten(r.Name, nameColumns)
		for _, b := range r.Blockers {
			if b.Code == diagnosis.IsEnding || b.Code == diagnosis.IsPausing { // the phase says so already
				continue
			}
			out = append(out, name+": "+s.withFlags(progress.SanitizeLine(progress.FormatBlocker(b), 500)))
		}
		if refused(r) && s.now.Sub(r.CreatedAt) < refusalShown {
			out = append(out, name+" was refused: "+progress.SanitizeLine(r.Message, 500))
		}
		if len(out) >= maxNotes {
			break
		}
	}
	for i, u := range s.Uploads {
		if i == maxNotes {
			return append(out, figures.OfMany(len(s.Uploads)-i, "more file in prompts/ is not a run",
				"more files in prompts/ are not runs"))
		}
		out = append(out, progress.SanitizeLine(u.Key, 200)+": "+s.withFlags(progress.SanitizeLine(u.Why, 500)))
	}
	return out
}

// refusalShown is how long the notes mention a refused run.
const refusalShown = 24 * time.Hour

func refused(r status.Status) bool { return r.Phase.Ended() && r.Items.Total == 0 && r.Message != "" }

// deadShown is how long a dead worker stays in the table.
const deadShown = time.Minute

var workerColumns = []string{
	"WORKER", "STATE", "SEEN", "BUSY", "RATE", "TOKENS/S", "MEDIAN", "SHARDS", "FAULTS", "POOL", "PROCESS",
}

// On a narrow terminal, the table shows only the end of a worker's id, in which ids differ most, and leaves out the
// last columns.
const (
	workerStateColumn = 1
	narrowWorkerID    = 8
	narrowColumns     = 8
)

// workers formats a table of the workers that are alive, or died recently.
func (s screen) workers() string {
	rows := [][]string{workerColumns}
	var shown []status.WorkerStatus
	for _, w := range s.Workers {
		if !w.Alive && (w.State == health.Gone || s.now.Sub(w.HeartbeatAt) > deadShown) {
			continue
		}
		shown = append(shown, w)
		rows = append(rows, s.worker(w))
	}
	if len(shown) == 0 {
		if s.live {
			return "no worker is alive\n"
		}
		return ""
	}
	colour := func(row, column int, cell string) string {
		if column != workerStateColumn {
			return cell
		}
		return colourWorker(s.colours, shown[row-1], cell)
	}
	wide := terminal.Table(rows, s.colours, colour)
	if s.columns == 0 || terminal.Widest(wide) <= s.columns {
		return wide
	}
	for i, row := range rows {
		if i > 0 && len(row[0]) > narrowWorkerID {
			row[0] = "…" + row[0][len(row[0])-narrowWorkerID:]
		}
		rows[i] = row[:narrowColumns]
	}
	return terminal.Table(rows, s.colours, colour)
}

func (s screen) worker(w status.WorkerStatus) []string {
	median := "-"
	if w.Load.MedianMS > 0 {
		median = progress.FormatElapsed(time.Duration(w.Load.MedianMS) * time.Millisecond)
	}
	rate := w.Load.Rate
	return []string{
		progress.SanitizeLine(w.Worker, 26),
		workerState(w),
		progress.FormatElapsed(s.now.Sub(w.HeartbeatAt)),
		fmt.Sprintf("%d/%d", w.Load.InFlight, w.InFlight),
		progress.FormatRate(&rate),
		figures.Whole(w.Load.TokenRate),
		median,
		s.heldShards(w),
		fmt.Sprint(w.Load.Faults),
		progress.SanitizeLine(w.Pool, 16),
		progress.SanitizeLine(fmt.Sprintf("%s:%d", cmp.Or(w.Instance, w.Host), w.PID), 30),
	}
}

// workerState describes the state of a worker and its engine in a word or two.
func workerState(w status.WorkerStatus) string {
	training := func(h health.HeldShard) bool { return h.Training != nil }
	switch {
	case !w.Alive:
		return "dead"
	case w.Engine == status.EngineAway:
		return "engine down"
	case w.Engine == status.EngineStarting:
		return "starting"
	case w.Draining != "":
		return "draining"
	case w.State == health.Ready && slices.ContainsFunc(w.Holds, training):
		return "training"
	}
	return string(w.State)
}

// servers formats a table of the inference servers, as seen by the worker with the most servers. It returns "" for a
// single server that works or is down, about which the workers' table says as much, unless the screen is live.
func (s screen) servers() string {
	var most []health.Server
	for _, w := range s.Workers {
		if w.Alive && len(w.Load.Servers) > len(most) {
			most = w.Load.Servers
		}
	}
	if len(most) < 2 && !slices.ContainsFunc(most, func(v health.Server) bool {
		return v.LastError != "" && (v.State == health.ServerClosed || v.State == health.ServerSetAside)
	}) && (!s.live || len(most) == 0) {
		return ""
	}
	rows := [][]string{{"SERVER", "STATE", "BUSY", "WAITING", "LAST ERROR"}}
	for _, v := range most {
		busy, waiting := fmt.Sprint(v.InFlight), "-"
		if v.Limit > 0 {
			busy += fmt.Sprintf("/%d", v.Limit)
		}
		if v.Waiting >= 0 {
			waiting = fmt.Sprint(v.Waiting)
		}
		rows = append(rows, []string{progress.SanitizeLine(v.Name, 60), serverState(v.State), busy, waiting,
			progress.SanitizeLine(v.LastError, 200)})
	}
	return terminal.Table(rows, s.colours, func(row, column int, cell string) string {
		switch {
		case column != 1:
			return cell
		case most[row-1].State == health.ServerClosed:
			return s.colours.In(terminal.Green, cell)
		}
		return s.colours.In(terminal.Red, cell)
	})
}

// limits describes the limits of pools on requests and tokens.
func (s screen) limits() string {
	var b strings.Builder
	for _, l := range status.Limits(s.Workers) {
		var parts []string
		if limit := diagnosis.FormatLimit(l); limit != "" {
			parts = append(parts, limit+", "+figures.Share(l.Used())+" used")
		}
		if l.WaitUntil != nil && l.WaitUntil.After(s.now) {
			parts = append(parts, "the server wants no requests for "+progress.FormatElapsed(l.WaitUntil.Sub(s.now)))
		}
		if l.Waiting > 0 && len(parts) > 0 {
			parts = append(parts, fmt.Sprintf("waiting requests: %d", l.Waiting))
		}
		if len(parts) > 0 {
			fmt.Fprintf(&b, "limit of pool %s: %s\n", progress.SanitizeLine(l.Pool, 32), strings.Join(parts, "; "))
		}
	}
	return b.String()
}

// serverState describes the state of a server.
func serverState(state string) string {
	switch state {
	case health.ServerClosed:
		return "ready"
	case health.ServerSetAside:
		return "set aside"
	case "doubted":
		return "probing"
	}
	return "down"
}

// maxHeld limits the shards that the table names for one worker.
const maxHeld = 4

// heldShards lists the shards that a worker holds, and the progress of each.
func (s screen) heldShards(w status.WorkerStatus) string {
	names := map[identity.RunID]string{}
	for _, r := range s.Runs {
		names[r.Run] = shorten(r.Name, 16)
	}
	var parts []string
	last := identity.RunID("")
	for i, h := range w.Holds {
		if i == maxHeld {
			parts = append(parts, fmt.Sprintf("+%d", len(w.Holds)-i))
			break
		}
		part := fmt.Sprint(h.Shard)
		if h.Items > 0 {
			part += fmt.Sprintf(" (%d/%d)", h.Rows, h.Items)
		}
		if name := names[h.Run]; h.Run != last && name != "" && !s.one {
			part = name + " " + part
		}
		last = h.Run
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// queues formats the queues that are not empty.
func (s screen) queues() string {
	var parts []string
	for _, q := range s.Queues {
		var counts []string
		for _, c := range []struct {
			n    int
			name string
		}{{q.Waiting, "waiting"}, {q.Hidden, "in flight or delayed"}, {q.Dead, "dead letters"}} {
			if c.n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", c.n, c.name))
			}
		}
		if len(counts) > 0 {
			parts = append(parts, q.Queue+" "+strings.Join(counts, ", "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "queues: " + strings.Join(parts, "; ") + "\n"
}
