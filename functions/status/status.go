package status

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/core/share"
	"rollout/shared/fault"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// Status is what a run is doing. Its JSON form is a contract: fields are added
// and never renamed, and every field is always present, null while its value
// is unknown. Left out are FailedShardsInARow while it is 0, FinishReasons until an
// answer does not stop by itself or the run has ended, Roles in a run of one role, and Parent in a run of its own.
type Status struct {
	Run    identity.RunID `json:"run_id"`
	Name   string         `json:"name"`
	Kind   string         `json:"kind"`
	Phase  run.Phase      `json:"phase"`
	Reason run.Reason     `json:"reason"` // why it ends or ended; "" before
	// Message is for people: why the run paused, failed, was refused or is
	// slower than it could be.
	Message string   `json:"message"`
	Model   string   `json:"model"`
	Pool    string   `json:"pool"`
	Inputs  []string `json:"inputs"` // object keys; of a run of many files, the first ones
	// MoreInputs is how many further inputs the run has; absent if it has none.
	MoreInputs int   `json:"more_inputs,omitempty"`
	Items      Items `json:"items"`
	// FailedByClass counts failed items by fault.Class; never null.
	FailedByClass map[string]int `json:"failed_by_class"`
	// FinishReasons counts the committed answers by finish reason; in a child, those of
	// the items that it asked again. Absent for kinds that answer nothing, and while a
	// run that has not ended has no other reason than stop.
	FinishReasons map[string]int `json:"finish_reasons,omitempty"`
	Shards        Shards         `json:"shards"`
	// FailedShardsInARow is how many shards without an answered item arrived since
	// the last shard with one, or since the run was resumed.
	FailedShardsInARow int    `json:"failed_shards_in_a_row,omitempty"`
	Tokens             Tokens `json:"tokens"`
	// CostUSD is what the run has cost so far, with the tokens and the machines' time of the
	// shards that are held, and Cost are its lines.
	CostUSD float64     `json:"cost_usd"`
	Cost    record.Cost `json:"cost"`
	// Budgets are the run's budgets, with what is spent of them, also by shards that are held
	// or wait for a larger allowance. Absent in a run without a budget.
	Budgets []record.Budget `json:"budgets,omitempty"`
	// Roles is the progress by role, the answer first. Items, Done and FailedByClass
	// are those of the roles with output; Shards and Tokens those of all roles.
	Roles []Role `json:"roles,omitempty"`
	// Shares are the run's parts of the pools that it needs, while it sends work to them;
	// never null.
	Shares []Share `json:"shares"`
	// Rate is the goodput: items that get a row, per second. While the run is
	// running, it is the rate of the last half minute that the workers holding
	// its shards report; if none reports one, the average since the start, pauses
	// included. After the end it is the average over the whole run. Null before
	// the first row, and while the run is paused, ending or finalizing.
	Rate *float64 `json:"rate"`
	// TokenRate is completion tokens per second, by the same rules.
	TokenRate *float64 `json:"token_rate"`
	// Parent is the run that this one retries; absent in a run of its own.
	Parent *record.Parent `json:"parent,omitempty"`
	// Training is the progress of a run of a kind that trains, as its worker reports
	// it or, while no worker holds it, as of its last snapshot. Null for other
	// kinds, and before the first step.
	Training *Training `json:"training"`
	// Rollout is the progress of a rollout, as of its last batch that is over. Absent
	// for other kinds, and before the first batch.
	Rollout *record.Rollout `json:"rollout,omitempty"`
	// Looks are those at a run of trials that prunes variants. Absent for other runs, and before
	// its trials are planned.
	Looks *Looks `json:"looks,omitempty"`
	// ETASeconds is how long the remaining items take at Rate. Null unless the
	// run is running, its rate is known and positive, and all its input is
	// planned. Both are null while no inference server of its workers answers.
	ETASeconds *float64 `json:"eta_seconds"`
	// Blockers are what keeps the run from going on, or from going on faster,
	// the worst first; never null. Package diagnosis fills them in.
	Blockers []Blocker `json:"hold_ups"`
	// Machines are those that are asked for or boot, by pool, while the run needs them. Absent
	// if there are none.
	Machines []PoolMachines `json:"machines,omitempty"`
	// Undelivered are the run's events for people that do not arrive. Absent if all did, and
	// of ended runs in lists.
	Undelivered *Undelivered `json:"undelivered,omitempty"`

	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`  // the first dispatch
	LastRowAt *time.Time `json:"last_row_at"` // by the workers that hold its shards
	Deadline  *time.Time `json:"deadline"`
	EndedAt   *time.Time `json:"ended_at"`
	// FinalizingAt is when all items had ended and the output files were begun; nil in runs of
	// earlier versions, too.
	FinalizingAt *time.Time `json:"finalizing_at,omitempty"`
	// Outputs is the key of completions.jsonl, which exists once the run has
	// ended.
	Outputs string `json:"outputs"`
	Errors  string `json:"errors"`  // the key of errors.jsonl
	Summary string `json:"summary"` // the key of summary.json
}

// Blocker is one thing that keeps a run from going on, or from going on faster.
type Blocker struct {
	Code   string `json:"code"`   // for programs. Example: "no_worker"
	Text   string `json:"text"`   // for people
	Remedy string `json:"remedy"` // what to do; "" if it passes by itself
}

// Items counts a run's items. Done and Failed are disjoint: once the run has
// ended they add up to Total.
type Items struct {
	Total  uint64 `json:"total"`  // planned so far
	Done   uint64 `json:"done"`   // with a committed answer
	Failed uint64 `json:"failed"` // without an answer, for good: at fault, or unanswered
	// Unanswered are the failed items without a fault of their own: the run
	// ended (stopped, expired, over budget, input changed) before they had a
	// row, or pruned their variant.
	Unanswered uint64 `json:"unanswered"`
	// Uncommitted are the items whose row a worker or a checkpoint holds, and
	// which is not committed yet.
	Uncommitted uint64 `json:"in_hand"`
	// Planned reports whether Total is final.
	Planned bool `json:"planned"`
}

// MarshalJSON adds at_fault, which is AtFault: what texts call failed.
func (i Items) MarshalJSON() ([]byte, error) {
	type fields Items
	return json.Marshal(struct {
		fields
		AtFault uint64 `json:"at_fault"`
	}{fields(i), i.AtFault()})
}

// Committed is how many items have a committed row of their own: an answer or
// an error.
func (i Items) Committed() uint64 { return i.Done + i.AtFault() }

// AtFault is how many items failed by a fault of their own.
func (i Items) AtFault() uint64 { return i.Failed - min(i.Failed, i.Unanswered) }

// Processed is how many items have a row, committed or not: what a progress bar
// shows.
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
	Wasted     int64 `json:"wasted"` // spent on answers that were discarded
	// WastedEstimated is how many of Wasted are estimates.
	WastedEstimated int64 `json:"wasted_estimated,omitempty"`
	// Cached are those of Prompt that servers had in their caches, and Reasoning those of
	// Completion that are a model's reasoning, as far as servers report them.
	Cached    int64 `json:"cached,omitempty"`
	Reasoning int64 `json:"reasoning,omitempty"`
}

// Progress is what the documents say about a run.
type Progress struct {
	Hints    cloud.Hints // what to do about trouble, where the installation is
	Manifest record.Manifest
	Kind     kind.Kind      // the zero Kind for a kind that this version does not know
	State    run.State      // run.New until coordinate has saved one
	Plan     record.Plan    // zero until planning has begun
	Control  record.Control // zero until a user or function has steered the run
	Workers  []WorkerStatus // all workers, of every pool
	// Deployment has the prices of the config.
	Deployment config.Deployment
	// Fleet is what the cloud reports about the machines of the first of the pools
	// that the run needs now without a living worker; zero if all have one.
	Fleet record.Fleet
	// Machines are those that are asked for or boot, of the pools that the run needs now.
	Machines []PoolMachines
	// CheckpointedRows counts rows in checkpoints of open shards that no worker
	// holds.
	CheckpointedRows uint64
	// Snapshot is a training's last snapshot by its shard document; nil before
	// the first, and for other kinds.
	Snapshot *shard.Snapshot
	// Rollout is the progress of a rollout; nil before its first batch, and for other kinds.
	Rollout *record.Rollout
	// Shares are the runs that share the pools that the run needs, by pool.
	Shares map[string]share.Doc
	// Notifications are the run's events for people; zero without any.
	Notifications record.Notifications
}

// Of returns what the run is doing at the time now, without Blockers.
func Of(p Progress, now time.Time) Status {
	m, st := p.Manifest, p.State
	s := Status{
		Run: m.Run, Name: m.Name, Kind: m.Kind, Model: m.ModelURI, Pool: m.Pool, Inputs: []string{},
		Phase: st.Phase, Reason: st.Reason, Message: cmp.Or(st.Message, st.Warning),
		Items: Items{
			Total:      max(st.Items, p.Plan.Items),
			Done:       uint64(max(0, st.Counts.OK)),
			Failed:     uint64(max(0, st.Counts.Failed)),
			Unanswered: countUnanswered(st.Counts.ByClass),
			Planned:    st.Complete,
		},
		FailedByClass:      map[string]int{},
		FailedShardsInARow: st.FailedStreak,
		Shards: Shards{Total: max(st.Shards, p.Plan.Shards), Dispatched: st.Sent(),
			Done: st.Done.Set.Len()},
		Tokens: Tokens{Prompt: st.Counts.PromptTokens, Completion: st.Counts.CompletionTokens,
			Wasted: st.Counts.WastedTokens, WastedEstimated: st.Counts.WastedEstimated,
			Cached: st.Counts.CachedTokens, Reasoning: st.Counts.ReasoningTokens},
		Shares:    sharesOf(p, now),
		Blockers:  []Blocker{},
		Parent:    m.Parent.Masked(),
		CreatedAt: m.CreatedAt.UTC(),
		StartedAt: timeOrNil(st.StartedAt),
		Deadline:  timeOrNil(st.Deadline),
		EndedAt:   timeOrNil(st.EndedAt),

		FinalizingAt: timeOrNil(st.FinalizingAt),
		Outputs:      record.OutputKey(m.Run, record.CompletionsFile),
		Errors:       record.OutputKey(m.Run, record.ErrorsFile),
		Summary:      record.OutputKey(m.Run, record.SummaryFile),
	}
	for _, in := range m.Inputs {
		s.Inputs = append(s.Inputs, in.Key)
	}
	s.MoreInputs = m.InputCount() - len(s.Inputs)
	maps.Copy(s.FailedByClass, st.Counts.ByClass)
	s.FinishReasons = finishReasons(p)
	s.Undelivered = undelivered(p.Notifications)
	s.Machines = p.Machines
	if m.Refused != "" {
		s.Phase, s.Message, s.EndedAt = run.Failed, m.Refused, timeOrNil(m.CreatedAt)
	}
	if st.Phase == run.Finalizing || st.Phase.Ended() { // the end leaves out what the plan gets after it
		s.Items.Total, s.Shards.Total = st.Items, st.Shards
	}
	w := heldBy(m.Run, p.Workers)
	if !s.Phase.Ended() { // the last heartbeats of workers may still name shards of an ended run
		s.Shards.Running, s.Items.Uncommitted, s.LastRowAt = w.shards, w.rows+p.CheckpointedRows, timeOrNil(w.rowAt)
	}
	s.setRoles(p)
	s.setCost(p)
	s.setBudgets(p)
	s.setRollout(p)
	s.setLooks(p)
	s.setRates(w, st, now)
	s.setTraining(p)
	return s
}

// Unanswered reports whether a run gives this class to items that it leaves without an
// answer: such items are not at fault.
func Unanswered(c fault.Class) bool { return c.Unanswered() }

func countUnanswered(byClass map[string]int) (n uint64) {
	for c, k := range byClass {
		if Unanswered(fault.Class(c)) {
			n += uint64(max(0, k))
		}
	}
	return n
}

// FormatPhase renders a phase for people. Example: "completed with errors".
func FormatPhase(p run.Phase) string { return strings.ReplaceAll(string(p), "_", " ") }

// timeOrNil returns nil for the zero time.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
