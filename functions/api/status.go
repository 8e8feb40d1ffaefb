package api

import (
	"cmp"
	"maps"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Status is what a run is doing. Its JSON form is a contract: fields are
// added, never renamed, and every one is always there, null where it is not
// known (yet).
type Status struct {
	Run     identity.RunID `json:"run_id"`
	Name    string         `json:"name"`
	Kind    string         `json:"kind"`
	Phase   run.Phase      `json:"phase"`
	Reason  run.Reason     `json:"reason"`  // why it ends or ended; "" while it goes on
	Message string         `json:"message"` // for people: why it paused, failed, was refused or goes slower than it could
	Model   string         `json:"model"`
	Pool    string         `json:"pool"`
	Inputs  []string       `json:"inputs"` // object keys
	Items   Items          `json:"items"`
	// FailedByClass counts failed items by fault.Class; never null.
	FailedByClass map[string]int `json:"failed_by_class"`
	Shards        Shards         `json:"shards"`
	Tokens        Tokens         `json:"tokens"`
	// Rate is items with a row per second: goodput. While the run is running,
	// over the last half minute, by what the workers that hold its shards say;
	// since its start, pauses included, where none says anything. Of an ended
	// run: over all its time. Null before the first row, and while the run is
	// paused, ending or finalizing.
	Rate *float64 `json:"rate"`
	// TokenRate is completion tokens per second, likewise.
	TokenRate *float64 `json:"token_rate"`
	// Training is how far a run of kind "train" is, by its worker or, while
	// nobody has it, its last snapshot; null of other runs, and before its first
	// step.
	Training *Training `json:"training"`
	// ETASeconds is what is left at that rate: null unless the run is running,
	// its rate is known and not 0, and all its input is planned.
	ETASeconds *float64 `json:"eta_seconds"`
	// Blockers are what keeps the run from going on, or from going on faster,
	// the worst first; never null.
	Blockers  []Blocker  `json:"hold_ups"`
	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`  // the first dispatch
	LastRowAt *time.Time `json:"last_row_at"` // by the workers that hold its shards
	Deadline  *time.Time `json:"deadline"`
	EndedAt   *time.Time `json:"ended_at"`
	// Outputs is the key of completions.jsonl: there once the run has ended.
	Outputs string `json:"outputs"`
	Errors  string `json:"errors"`  // the key of errors.jsonl
	Summary string `json:"summary"` // the key of summary.json
}

// Items counts a run's items. done and failed are disjoint: once the run has
// ended they add up to total.
type Items struct {
	Total  uint64 `json:"total"`  // planned so far
	Done   uint64 `json:"done"`   // with a committed answer
	Failed uint64 `json:"failed"` // without one, for good
	// Unanswered are those of failed that were never at fault: the run ended
	// (stopped, expired, over budget, another input) before they had a row.
	Unanswered uint64 `json:"unanswered"`
	// Uncommitted have a row that is not committed yet: workers or checkpoints
	// hold it.
	Uncommitted uint64 `json:"in_hand"`
	// Planned reports whether total is final.
	Planned bool `json:"planned"`
}

// Committed is how many items have a committed row of their own, of either kind.
func (i Items) Committed() uint64 { return i.Done + i.AtFault() }

// AtFault is how many items failed by a fault of their own.
func (i Items) AtFault() uint64 { return i.Failed - min(i.Failed, i.Unanswered) }

// Processed is how many items have a row, kept or in hand: what a bar shows.
func (i Items) Processed() uint64 {
	return min(i.Committed()+i.Uncommitted, max(i.Total, i.Committed()))
}

// Shards counts a run's shards.
type Shards struct {
	Total      int `json:"total"`      // planned so far
	Dispatched int `json:"dispatched"` // sent to workers, done ones included
	Running    int `json:"running"`    // held by living workers
	Done       int `json:"done"`
}

// Tokens counts the tokens of a run's committed shards.
type Tokens struct {
	Prompt     int64 `json:"prompt"`
	Completion int64 `json:"completion"`
	Wasted     int64 `json:"wasted"` // spent on answers that were not kept
}

// Progress is what the documents say about a run.
type Progress struct {
	Cloud            config.Cloud // where the installation is
	Manifest         record.Manifest
	State            run.State       // run.New if coordinate has not saved one yet
	Plan             record.Plan     // zero if there is none yet
	Control          record.Control  // zero if nobody wanted anything yet
	Workers          []WorkerStatus  // all of them
	Fleet            record.Fleet    // of the pool, if nobody works for it; zero if nothing is said of it
	CheckpointedRows uint64          // rows in checkpoints of open shards that nobody holds
	Snapshot         *shard.Snapshot // of a training: the last one that its document names
}

// StatusOf says what a run is doing at the time now.
func StatusOf(p Progress, now time.Time) Status {
	m, st := p.Manifest, p.State
	s := Status{
		Run: m.Run, Name: m.Name, Kind: m.Kind, Model: m.ModelURI, Pool: m.Pool, Inputs: []string{},
		Phase: st.Phase, Reason: st.Reason, Message: cmp.Or(st.Message, st.Warning),
		Items: Items{
			Total:      max(st.Items, p.Plan.Items),
			Done:       uint64(max(0, st.Counts.OK)),
			Failed:     uint64(max(0, st.Counts.Failed)),
			Unanswered: unanswered(st.Counts.ByClass),
			Planned:    st.Complete,
		},
		FailedByClass: map[string]int{},
		Shards:        Shards{Total: max(st.Shards, p.Plan.Shards), Dispatched: st.NextShard, Done: st.Done.Set.Len()},
		Tokens:        Tokens{Prompt: st.Counts.PromptTokens, Completion: st.Counts.CompletionTokens, Wasted: st.Counts.WastedTokens},
		Blockers:      []Blocker{},
		CreatedAt:     m.CreatedAt.UTC(),
		StartedAt:     timeOrNil(st.StartedAt),
		Deadline:      timeOrNil(st.Deadline),
		EndedAt:       timeOrNil(st.EndedAt),
		Outputs:       record.OutputKey(m.Run, record.CompletionsFile),
		Errors:        record.OutputKey(m.Run, record.ErrorsFile),
		Summary:       record.OutputKey(m.Run, record.SummaryFile),
	}
	for _, in := range m.Inputs {
		s.Inputs = append(s.Inputs, in.Key)
	}
	maps.Copy(s.FailedByClass, st.Counts.ByClass)
	if m.Refused != "" {
		s.Phase, s.Message, s.EndedAt = run.Failed, m.Refused, timeOrNil(m.CreatedAt)
	}
	w := heldBy(m.Run, p.Workers)
	if !s.Phase.Ended() { // what the last heartbeats of workers still name
		s.Shards.Running, s.Items.Uncommitted, s.LastRowAt = w.shards, w.rows+p.CheckpointedRows, timeOrNil(w.rowAt)
	}
	s.setRates(w, st, now)
	s.setTraining(p)
	if !s.Phase.Ended() {
		s.Blockers = append(s.Blockers, blockers(p, s, now)...)
	}
	return s
}

// Unanswered reports whether the class is one that the end of a run gives to
// items that have no row: they were not at fault.
func Unanswered(c fault.Class) bool {
	switch c {
	case fault.CanceledItem, fault.Expired, fault.Budget, fault.InputChanged:
		return true
	}
	return false
}

func unanswered(byClass map[string]int) (n uint64) {
	for c, k := range byClass {
		if Unanswered(fault.Class(c)) {
			n += uint64(max(0, k))
		}
	}
	return n
}

// recently is how long ago coordinate must have saved something for the
// average since the start to say anything about now.
const recently = 30 * time.Second

// setRates sets what holds the rules of Rate, TokenRate and ETASeconds.
func (s *Status) setRates(w heldWork, st run.State, now time.Time) {
	running := s.Phase == run.Running || s.Phase == run.Planning
	switch {
	case running && w.hasRates():
		s.Rate, s.TokenRate = &w.rate, &w.tokenRate
	case s.StartedAt == nil || s.Items.Committed() == 0:
		return
	case running && now.Sub(st.SavedAt) < recently:
		s.Rate, s.TokenRate = s.average(now)
	case s.EndedAt != nil:
		s.Rate, s.TokenRate = s.average(*s.EndedAt)
	}
	if s.Rate == nil || *s.Rate <= 0 || !running || !s.Items.Planned {
		return
	}
	left := float64(s.Items.Total-min(s.Items.Total, s.Items.Processed())) / *s.Rate
	s.ETASeconds = &left
}

// average is the rates since the start.
func (s *Status) average(until time.Time) (items, tokens *float64) {
	seconds := until.Sub(*s.StartedAt).Seconds()
	if seconds <= 0 { // clocks of several machines
		return nil, nil
	}
	i, t := float64(s.Items.Committed())/seconds, float64(s.Tokens.Completion)/seconds
	return &i, &t
}

// heldWork is what living workers have in hand of one run.
type heldWork struct {
	shards, busy    int // requests: of the workers, whatever runs they are of
	rows            uint64
	rate, tokenRate float64 // the run's share
	rowAt           time.Time
}

// hasRates reports whether the workers' rates say anything: they do from the
// first row on.
func (w heldWork) hasRates() bool { return w.shards > 0 && !w.rowAt.IsZero() }

// heldBy sums up what living workers say of a run. A worker that holds shards
// of several runs gives each its share of the rates.
func heldBy(id identity.RunID, workers []WorkerStatus) (out heldWork) {
	for _, w := range workers {
		if !w.Alive {
			continue
		}
		mine := 0
		for _, h := range w.Holds {
			if h.Run == id {
				mine++
				out.rows += uint64(max(0, h.Rows))
			}
		}
		if mine == 0 {
			continue
		}
		share := float64(mine) / float64(len(w.Holds))
		out.shards += mine
		out.busy += w.Load.InFlight
		out.rate += share * w.Load.Rate
		out.tokenRate += share * w.Load.TokenRate
		if w.Load.RowAt.After(out.rowAt) {
			out.rowAt = w.Load.RowAt
		}
	}
	return out
}

// timeOrNil returns nil for the zero time.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
