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
	"rollout/shared/core/pipeline"
	"rollout/shared/core/run"
	"rollout/shared/figures"
)

// screen formats an overview as text for a terminal or a file.
type screen struct {
	api.Overview
	one       bool            // the overview is of one run
	name      string          // the overview is of the runs with this text in their names; "": of all
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
	if len(s.Runs) == 0 && s.name != "" {
		return s.paragraph(fmt.Sprintf("no run has %q in its name", progress.SanitizeLine(s.name, maxName)))
	}
	if workers, _ := s.workers(); len(s.Runs) == 0 && !s.live && workers == "" {
		return cmp.Or(s.moreEnded(), s.paragraph(s.withFlags(noRuns)))
	}
	parts := []string{}
	var left []string // out at this width
	leave := func(dropped []string, of string) {
		if len(dropped) > 0 {
			left = append(left, strings.Join(dropped, ", ")+" of "+of)
		}
	}
	switch {
	case len(s.Runs) == 0:
		parts = append(parts, cmp.Or(s.moreEnded(), s.paragraph(s.withFlags(noRuns))))
	case s.one:
		parts = append(parts, s.details(s.Runs[0]))
	default:
		runs, dropped := s.runs()
		parts = append(parts, runs)
		leave(dropped, "runs")
	}
	if s.live || s.anyOpen() || !s.one {
		workers, dropped := s.workers()
		leave(dropped, "workers")
		for _, part := range []string{workers, s.servers(), s.pipelines(), s.limits(), s.queues()} {
			if part != "" {
				parts = append(parts, part)
			}
		}
	}
	if len(left) > 0 {
		parts = append(parts, s.paragraph("left out at this width: "+strings.Join(left, "; ")))
	}
	return strings.Join(parts, "\n")
}

// paragraph wraps a text to the width of the terminal, and ends it with a newline.
func (s screen) paragraph(text string) string { return terminal.Sentences(text, s.columns) + "\n" }

const noRuns = "no runs yet: start one with `rollout submit FILE`"

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

// silent reports whether no worker that the run needs lives and has an engine that answers, so that an earlier rate
// says nothing.
func (s screen) silent(r status.Status) bool {
	return r.Phase == run.Running && !slices.ContainsFunc(s.Workers, func(w status.WorkerStatus) bool {
		return w.Alive && w.Engine != status.EngineAway && slices.Contains(r.Pools(), w.Pool)
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

const workerStateColumn = 1

// narrowWorkerID is how many characters of a worker's id a narrow terminal shows: its end, in which ids differ most.
const narrowWorkerID = 8

// workerLayouts are the ways to draw the table of workers. The first that fits is taken.
var workerLayouts = []workerLayout{
	{},
	{narrow: true},
	{narrow: true, drop: []string{"PROCESS"}},
	{narrow: true, drop: []string{"PROCESS", "FAULTS"}},
	{narrow: true, samePool: true, drop: []string{"PROCESS", "FAULTS", "POOL"}},
	{narrow: true, counts: true, drop: []string{"PROCESS", "FAULTS"}},
	{narrow: true, counts: true, drop: []string{"PROCESS", "FAULTS", "TOKENS/S"}},
	{narrow: true, counts: true, drop: []string{"PROCESS", "FAULTS", "TOKENS/S", "POOL"}},
	{narrow: true, counts: true, drop: []string{"PROCESS", "FAULTS", "TOKENS/S", "POOL", "MEDIAN"}},
}

// workerLayout is how the table of workers is drawn.
type workerLayout struct {
	narrow   bool // the ends of ids
	counts   bool // how many shards a worker holds, instead of which
	samePool bool // it is for workers of one pool
	drop     []string
}

// workers formats a table of the workers that are alive, or died recently. It returns the columns that it left out.
func (s screen) workers() (text string, dropped []string) {
	var shown []status.WorkerStatus
	pools := map[string]bool{}
	for _, w := range s.Workers {
		if !w.Alive && (w.State == health.Gone || s.now.Sub(w.HeartbeatAt) > deadShown) {
			continue
		}
		shown = append(shown, w)
		pools[w.Pool] = true
	}
	if len(shown) == 0 {
		if s.live {
			return "no worker is alive\n", nil
		}
		return "", nil
	}
	for _, l := range workerLayouts {
		if l.samePool && len(pools) > 1 {
			continue
		}
		text, dropped = s.workerTable(shown, l), l.drop
		if s.columns == 0 || terminal.Widest(text) <= s.columns {
			break
		}
	}
	return text, dropped
}

func (s screen) workerTable(workers []status.WorkerStatus, l workerLayout) string {
	keep := func(row []string) (out []string) {
		for i, cell := range row {
			if !slices.Contains(l.drop, workerColumns[i]) {
				out = append(out, cell)
			}
		}
		return out
	}
	rows := [][]string{keep(workerColumns)}
	for _, w := range workers {
		rows = append(rows, keep(s.worker(w, l)))
	}
	return terminal.Table(rows, s.colours, func(row, column int, cell string) string {
		if column != workerStateColumn {
			return cell
		}
		return colourWorker(s.colours, workers[row-1], cell)
	})
}

func (s screen) worker(w status.WorkerStatus, l workerLayout) []string {
	id, shards := progress.SanitizeLine(w.Worker, idColumns), s.heldShards(w)
	if l.narrow && len(id) > narrowWorkerID {
		id = "…" + id[len(id)-narrowWorkerID:]
	}
	if l.counts {
		shards = figures.Count(len(w.Holds))
	}
	busy, rate, tokens, median := "-", "-", "-", "-" // of a dead worker
	if w.Alive {
		busy = formatBusy(w.Load.InFlight, w.InFlight)
		rate, tokens = progress.FormatRate(&w.Load.Rate), figures.Whole(w.Load.TokenRate)
		if w.Load.MedianMS > 0 {
			median = progress.FormatElapsed(time.Duration(w.Load.MedianMS) * time.Millisecond)
		}
	}
	return []string{
		id, workerState(w), progress.FormatElapsed(s.now.Sub(w.HeartbeatAt)), busy, rate, tokens, median, shards,
		fmt.Sprint(w.Load.Faults), progress.SanitizeLine(w.Pool, 16),
		progress.SanitizeLine(fmt.Sprintf("%s:%d", cmp.Or(w.Instance, w.Host), w.PID), 30),
	}
}

// formatBusy formats requests in flight and the most allowed. After the limit was lowered there are more than that for
// a while: 57→35.
func formatBusy(busy, limit int) string {
	if busy > limit {
		return fmt.Sprintf("%d→%d", busy, limit)
	}
	return fmt.Sprintf("%d/%d", busy, limit)
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
	text := s.serverTable(most, maxServerName, true)
	if s.columns == 0 || terminal.Widest(text) <= s.columns {
		return text
	}
	// Errors are long: on a narrow terminal they go below the table.
	text = s.serverTable(most, maxServerName, false)
	if over := terminal.Widest(text) - s.columns; over > 0 {
		text = s.serverTable(most, max(leastServerName, maxServerName-over), false)
	}
	for _, v := range most {
		if v.LastError != "" {
			text += s.paragraph(progress.SanitizeLine(v.Name, maxServerName) + ": " +
				progress.SanitizeLine(v.LastError, maxServerError))
		}
	}
	return text
}

// Bounds of a server's name and its error.
const (
	maxServerName   = 60
	leastServerName = 12
	maxServerError  = 200
)

// serverTable formats the table of servers, with names of at most that width.
func (s screen) serverTable(servers []health.Server, name int, errors bool) string {
	errors = errors && slices.ContainsFunc(servers, func(v health.Server) bool { return v.LastError != "" })
	header := []string{"SERVER", "STATE", "BUSY", "WAITING"}
	if errors {
		header = append(header, "LAST ERROR")
	}
	rows := [][]string{header}
	for _, v := range servers {
		busy, waiting := fmt.Sprint(v.InFlight), "-"
		if v.Limit > 0 {
			busy = formatBusy(v.InFlight, v.Limit)
		}
		if v.Waiting >= 0 && serverState(v.State) != "down" { // what a server said before it went down says nothing
			waiting = fmt.Sprint(v.Waiting)
		}
		row := []string{shorten(v.Name, name), serverState(v.State), busy, waiting}
		if errors {
			row = append(row, progress.SanitizeLine(v.LastError, maxServerError))
		}
		rows = append(rows, row)
	}
	return terminal.Table(rows, s.colours, func(row, column int, cell string) string {
		switch {
		case column != 1:
			return cell
		case servers[row-1].State == health.ServerClosed:
			return s.colours.In(terminal.Green, cell)
		}
		return s.colours.In(terminal.Red, cell)
	})
}

// pipelines formats a line for each group of processes: what bounds it, and how well its stages
// overlap.
func (s screen) pipelines() string {
	var b strings.Builder
	for _, w := range s.Workers {
		p := w.Load.Pipeline
		if !w.Alive || p == nil {
			continue
		}
		line := fmt.Sprintf("pipeline of worker %s: %s", progress.SanitizeLine(w.Worker, 32),
			progress.SanitizeLine(p.Signature, 32))
		if p.Signature != string(pipeline.WarmingUp) {
			line += fmt.Sprintf(", overlap %.2f", p.OverlapScore)
		}
		b.WriteString(s.paragraph(line))
	}
	return b.String()
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
			b.WriteString(s.paragraph(fmt.Sprintf("limit of pool %s: %s", progress.SanitizeLine(l.Pool, 32),
				strings.Join(parts, "; "))))
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

const (
	maxHeld  = 4  // shards that the table names for one worker
	heldName = 16 // columns of the name of their run
)

// takenOver reports whether a living worker holds a shard of a dead one.
func (s screen) takenOver(h health.HeldShard) bool {
	return slices.ContainsFunc(s.Workers, func(w status.WorkerStatus) bool {
		return w.Alive && slices.ContainsFunc(w.Holds, func(o health.HeldShard) bool {
			return o.Run == h.Run && o.Shard == h.Shard
		})
	})
}

// heldShards lists the shards that a worker holds, and the progress of each: of a dead one those that no other has
// taken over, on the screen of one run those of that run.
func (s screen) heldShards(w status.WorkerStatus) string {
	var holds []health.HeldShard
	others := 0
	for _, h := range w.Holds {
		switch {
		case !w.Alive && s.takenOver(h):
		case s.one && len(s.Runs) == 1 && h.Run != s.Runs[0].Run:
			others++
		default:
			holds = append(holds, h)
		}
	}
	all := make([]string, len(s.Runs))
	for i, r := range s.Runs {
		all[i] = progress.SanitizeLine(r.Name, maxName)
	}
	names := map[identity.RunID]string{}
	for i, name := range terminal.ShortenApart(all, heldName) {
		names[s.Runs[i].Run] = name
	}
	var parts []string
	last := identity.RunID("")
	for i, h := range holds {
		if i == maxHeld {
			parts = append(parts, fmt.Sprintf("+%d", len(holds)-i))
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
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d of other runs", others))
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
		}{{q.Waiting, "waiting"}, {q.Hidden, "being handled or delayed"}, {q.Dead, "dead letters"}} {
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
	return s.paragraph("messages in queues: " + strings.Join(parts, "; "))
}
