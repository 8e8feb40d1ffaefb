package api

import (
	"cmp"
	"maps"
	"time"

	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
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
	// Rate is items with a result per second. While the run is running: since
	// it started, pauses included. Of an ended run: over all its time. Null
	// before the first result, and while it is paused, ending or finalizing.
	Rate *float64 `json:"rate"`
	// ETASeconds is what is left at that rate: null unless the run is running,
	// its rate is known and all its input is planned.
	ETASeconds *float64   `json:"eta_seconds"`
	CreatedAt  time.Time  `json:"created_at"`
	StartedAt  *time.Time `json:"started_at"` // the first dispatch
	EndedAt    *time.Time `json:"ended_at"`
	// Outputs is the key of completions.jsonl: there once the run has ended.
	Outputs string `json:"outputs"`
	Errors  string `json:"errors"`  // the key of errors.jsonl
	Summary string `json:"summary"` // the key of summary.json
}

// Items counts a run's items. done and failed are disjoint: once the run has
// ended they add up to total.
type Items struct {
	Total  uint64 `json:"total"` // planned so far
	Done   uint64 `json:"done"`  // with a committed answer
	Failed uint64 `json:"failed"`
	// Planned reports whether total is final.
	Planned bool `json:"planned"`
}

// Settled is how many items have a result of either kind.
func (i Items) Settled() uint64 { return i.Done + i.Failed }

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
	Manifest record.Manifest
	State    run.State   // run.New if coordinate has not saved one yet
	Plan     record.Plan // zero if there is none yet
	Held     int         // shards in the hands of living workers
}

// StatusOf says what a run is doing at the time now.
func StatusOf(p Progress, now time.Time) Status {
	m, st := p.Manifest, p.State
	s := Status{
		Run: m.Run, Name: m.Name, Kind: m.Kind, Model: m.ModelURI, Pool: m.Pool, Inputs: []string{},
		Phase: st.Phase, Reason: st.Reason, Message: cmp.Or(st.Message, st.Warning),
		Items: Items{
			Total:   max(st.Items, p.Plan.Items),
			Done:    uint64(max(0, st.Counts.OK)),
			Failed:  uint64(max(0, st.Counts.Failed)),
			Planned: st.Complete,
		},
		FailedByClass: map[string]int{},
		Shards: Shards{
			Total:      max(st.Shards, p.Plan.Shards),
			Dispatched: st.Next,
			Running:    p.Held,
			Done:       st.Done.Set.Len(),
		},
		Tokens:    Tokens{Prompt: st.Counts.PromptTokens, Completion: st.Counts.CompletionTokens, Wasted: st.Counts.WastedTokens},
		CreatedAt: m.CreatedAt.UTC(),
		StartedAt: known(st.StartedAt),
		EndedAt:   known(st.EndedAt),
		Outputs:   record.OutputKey(m.Run, record.Completions),
		Errors:    record.OutputKey(m.Run, record.Errors),
		Summary:   record.OutputKey(m.Run, record.SummaryFile),
	}
	for _, in := range m.Inputs {
		s.Inputs = append(s.Inputs, in.Key)
	}
	maps.Copy(s.FailedByClass, st.Counts.ByClass)
	if m.Refused != "" {
		s.Phase, s.Message, s.EndedAt = run.Failed, m.Refused, known(m.CreatedAt)
	}
	if s.Phase.Ended() {
		s.Shards.Running = 0 // what the workers' last heartbeats still name
	}
	s.Rate, s.ETASeconds = speed(s, now)
	return s
}

// speed holds the rules of Rate and ETASeconds.
func speed(s Status, now time.Time) (rate, eta *float64) {
	running := s.Phase == run.Running || s.Phase == run.Planning
	if s.StartedAt == nil || s.Items.Settled() == 0 || !running && !s.Phase.Ended() {
		return nil, nil
	}
	until := now
	if s.EndedAt != nil {
		until = *s.EndedAt
	}
	seconds := until.Sub(*s.StartedAt).Seconds()
	if seconds <= 0 { // clocks of several machines
		return nil, nil
	}
	r := float64(s.Items.Settled()) / seconds
	if !running || !s.Items.Planned {
		return &r, nil
	}
	left := float64(s.Items.Total-min(s.Items.Total, s.Items.Settled())) / r
	return &r, &left
}

// known returns nil for the zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
