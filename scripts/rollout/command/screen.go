package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
)

// screen renders an overview as text.
type screen struct {
	api.Overview
	one     bool // the overview is of one run
	live    bool // it is drawn again and again: bars are worth their place
	paces   map[identity.RunID]progress.Pace
	now     time.Time
	columns int // of the terminal; 0 is no limit
	colours palette
	path    func(key string) string
	here    func(text string) string
}

// body is tables and facts.
func (s screen) body() string {
	if len(s.Runs) == 0 {
		return s.here("no runs yet: `rollout submit FILE` makes one\n")
	}
	parts := []string{}
	if s.one {
		parts = append(parts, s.details(s.Runs[0]))
	} else {
		parts = append(parts, s.runs())
	}
	if w := s.workers(); w != "" && s.anyOpen() {
		parts = append(parts, w)
	}
	if v := s.servers(); v != "" && s.anyOpen() {
		parts = append(parts, v)
	}
	if q := s.queues(); q != "" && s.anyOpen() {
		parts = append(parts, q)
	}
	return strings.Join(parts, "\n")
}

func (s screen) anyOpen() bool {
	for _, r := range s.Runs {
		if !r.Phase.Ended() {
			return true
		}
	}
	return false
}

// maxNotes bounds how many runs and how many uploads are spoken of.
const maxNotes = 10

// notes say what holds runs up and what uploads became none. Of one run, the
// details say it.
func (s screen) notes() (out []string) {
	if s.one {
		return nil
	}
	for _, r := range s.Runs {
		for _, h := range r.Blockers {
			if h.Code == diagnosis.IsEnding || h.Code == diagnosis.IsPausing { // as its phase says
				continue
			}
			out = append(out, progress.SanitizeLine(r.Name, nameColumns)+": "+s.here(progress.SanitizeLine(progress.FormatBlocker(h), 500)))
		}
		if refused(r) && s.now.Sub(r.CreatedAt) < dayOld {
			out = append(out, progress.SanitizeLine(r.Name, nameColumns)+" was refused: "+progress.SanitizeLine(r.Message, 500))
		}
		if len(out) >= maxNotes {
			break
		}
	}
	for i, u := range s.Uploads {
		if i == maxNotes {
			return append(out, fmt.Sprintf("and %d more files in prompts/ that are no run", len(s.Uploads)-i))
		}
		out = append(out, progress.SanitizeLine(u.Key, 200)+": "+s.here(progress.SanitizeLine(u.Why, 500)))
	}
	return out
}

// dayOld is when a refusal is no news any more.
const dayOld = 24 * time.Hour

func refused(r status.Status) bool { return r.Phase.Ended() && r.Items.Total == 0 && r.Message != "" }

// deadFor is how long a worker that died is still shown.
const deadFor = time.Minute

var workerColumns = []string{"WORKER", "STATE", "BEAT", "BUSY", "RATE", "TOKENS/S", "MEDIAN", "HOLDS", "FAULTS", "POOL", "PROCESS"}

// On a narrow terminal, a worker's id is its end, which differs most, and the
// last columns are left out.
const (
	workerStateColumn = 1
	narrowWorkerID    = 8
	narrowColumns     = 8
)

// workers is a table of those that live, or did a moment ago.
func (s screen) workers() string {
	rows := [][]string{workerColumns}
	var shown []status.WorkerStatus
	for _, w := range s.Workers {
		if !w.Alive && (w.State == health.Gone || s.now.Sub(w.HeartbeatAt) > deadFor) {
			continue
		}
		shown = append(shown, w)
		rows = append(rows, s.worker(w))
	}
	if len(shown) == 0 {
		return ""
	}
	colour := func(row, column int, cell string) string {
		if column != workerStateColumn {
			return cell
		}
		return s.colours.worker(shown[row-1], cell)
	}
	wide := s.table(rows, colour)
	if s.columns == 0 || widest(wide) <= s.columns {
		return wide
	}
	for i, row := range rows {
		if i > 0 && len(row[0]) > narrowWorkerID {
			row[0] = "…" + row[0][len(row[0])-narrowWorkerID:]
		}
		rows[i] = row[:narrowColumns]
	}
	return s.table(rows, colour)
}

func (s screen) worker(w status.WorkerStatus) []string {
	median := "-"
	if w.Load.MedianMS > 0 {
		median = progress.FormatElapsed(time.Duration(w.Load.MedianMS) * time.Millisecond)
	}
	rate := w.Load.Rate
	return []string{progress.SanitizeLine(w.Worker, 26), stateWords(w), progress.FormatElapsed(s.now.Sub(w.HeartbeatAt)), fmt.Sprintf("%d/%d", w.Load.InFlight, w.InFlight),
		progress.FormatRate(&rate), fmt.Sprintf("%.0f", w.Load.TokenRate), median, s.holds(w), fmt.Sprint(w.Load.Faults),
		progress.SanitizeLine(w.Pool, 16), progress.SanitizeLine(fmt.Sprintf("%s:%d", cmp.Or(w.Instance, w.Host), w.PID), 30)}
}

// stateWords is what a worker and its engine are, in a word or two.
func stateWords(w status.WorkerStatus) string {
	switch {
	case !w.Alive:
		return "dead"
	case w.Engine == status.EngineAway:
		return "engine away"
	case w.Engine == status.EngineStarting:
		return "starting"
	case w.Draining != "":
		return "draining"
	case w.State == health.Ready && slices.ContainsFunc(w.Holds, func(h health.HeldShard) bool { return h.Training != nil }):
		return "training"
	}
	return string(w.State)
}

// servers is a table of the inference servers, as the worker sees them that
// sees most: of one server, the workers' table says as much.
func (s screen) servers() string {
	var most []health.Server
	for _, w := range s.Workers {
		if w.Alive && len(w.Load.Servers) > len(most) {
			most = w.Load.Servers
		}
	}
	if len(most) < 2 {
		return ""
	}
	rows := [][]string{{"SERVER", "STATE", "BUSY", "WAITING", "TROUBLE"}}
	for _, v := range most {
		busy, waiting := fmt.Sprint(v.InFlight), "-"
		if v.Limit > 0 {
			busy += fmt.Sprintf("/%d", v.Limit)
		}
		if v.Waiting >= 0 {
			waiting = fmt.Sprint(v.Waiting)
		}
		rows = append(rows, []string{progress.SanitizeLine(v.Name, 60), serverWords(v.State), busy, waiting, progress.SanitizeLine(v.LastError, 200)})
	}
	return s.table(rows, func(row, column int, cell string) string {
		switch {
		case column != 1:
			return cell
		case most[row-1].State == "closed":
			return s.colours.in(green, cell)
		}
		return s.colours.in(red, cell)
	})
}

// serverWords says what the state of a circuit breaker means.
func serverWords(state string) string {
	switch state {
	case "closed":
		return "ready"
	case "doubted":
		return "doubted"
	}
	return "away"
}

// maxHolds bounds the shards that are named of one worker.
const maxHolds = 4

// holds names the shards in a worker's hands, and how far each is.
func (s screen) holds(w status.WorkerStatus) string {
	names := map[identity.RunID]string{}
	for _, r := range s.Runs {
		names[r.Run] = progress.SanitizeLine(r.Name, 16)
	}
	var parts []string
	last := identity.RunID("")
	for i, h := range w.Holds {
		if i == maxHolds {
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

// queues names the queues that hold something.
func (s screen) queues() string {
	var parts []string
	for _, q := range s.Queues {
		var what []string
		for _, n := range []struct {
			n    int
			what string
		}{{q.Waiting, "waiting"}, {q.Hidden, "in hand or to come"}, {q.Dead, "dead letters"}} {
			if n.n > 0 {
				what = append(what, fmt.Sprintf("%d %s", n.n, n.what))
			}
		}
		if len(what) > 0 {
			parts = append(parts, q.Queue+" "+strings.Join(what, ", "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "queues: " + strings.Join(parts, "; ") + "\n"
}

// fit cuts a line to the terminal, not counting what only colours it.
func (s screen) fit(line string) string {
	if s.columns == 0 || runewidth.StringWidth(uncoloured(line)) <= s.columns {
		return line
	}
	return runewidth.Truncate(uncoloured(line), s.columns, "…")
}

func uncoloured(line string) string {
	for {
		before, rest, ok := strings.Cut(line, "\x1b[")
		if !ok {
			return line
		}
		_, after, _ := strings.Cut(rest, "m")
		line = before + after
	}
}
