package run

import (
	"slices"
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// Schema is the version of the coordinator document.
const Schema = 1

// Phase is where a run stands in its life. Example: "running".
type Phase string

// The phases; the package comment has their diagram.
const (
	Planning            Phase = "planning"
	Running             Phase = "running"
	Pausing             Phase = "pausing"
	Paused              Phase = "paused"
	Interrupted         Phase = "interrupted"
	Ending              Phase = "ending"
	Finalizing          Phase = "finalizing"
	Completed           Phase = "completed"
	CompletedWithErrors Phase = "completed_with_errors"
	Stopped             Phase = "stopped"
	Expired             Phase = "expired"
	OverBudget          Phase = "over_budget"
	Failed              Phase = "failed"
)

// Ended reports whether the phase is terminal: the run never leaves it.
func (p Phase) Ended() bool {
	switch p {
	case Completed, CompletedWithErrors, Stopped, Expired, OverBudget, Failed:
		return true
	}
	return false
}

// Succeeded reports whether a run that ended in the phase answered every item that it
// did not prune.
func (p Phase) Succeeded() bool { return p == Completed }

// dispatches reports whether a run in the phase sends shards.
func (p Phase) dispatches() bool { return p == Planning || p == Running }

// Reason is why a run ends. Example: "stopped".
type Reason string

// The reasons to end.
const (
	ReasonDone         Reason = "done"
	ReasonStopped      Reason = "stopped"
	ReasonExpired      Reason = "expired"
	ReasonBudget       Reason = "budget"
	ReasonFailFast     Reason = "fail_fast"
	ReasonWorkerLost   Reason = "worker_lost" // of a run that fails fast
	ReasonInputChanged Reason = "input_changed"
	ReasonInputBroken  Reason = "input_broken"
)

// Class returns the class of the items that an end for the reason leaves without
// an answer.
func (r Reason) Class() fault.Class {
	switch r {
	case ReasonExpired:
		return fault.Expired
	case ReasonBudget:
		return fault.Budget
	case ReasonInputChanged:
		return fault.InputChanged
	case ReasonWorkerLost:
		return fault.WorkerLost
	}
	return fault.CanceledItem
}

// Phase returns the terminal phase of a run that ended for the reason with the counts
// of its items and of the lines that it refused as items. Pruned items are not errors: the
// run decided to leave them out.
func (r Reason) Phase(c shard.Counts, refused int) Phase {
	switch r {
	case ReasonDone:
		if c.Failed > c.ByClass[string(fault.Pruned)] || refused > 0 {
			return CompletedWithErrors
		}
		return Completed
	case ReasonStopped:
		return Stopped
	case ReasonExpired:
		return Expired
	case ReasonBudget:
		return OverBudget
	}
	return Failed
}

// State is the document coordinator/<run>, at most 16 KiB. Only coordinate
// writes it. Save the State that Step returned, then perform its Effects.
type State struct {
	Schema  int            `json:"schema"`
	Run     identity.RunID `json:"run"`
	Phase   Phase          `json:"phase"`
	Reason  Reason         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"` // for users: why it paused or failed
	Warning string         `json:"warning,omitempty"` // for users: why it is slower than its pool allows

	Shards   int    `json:"shards"` // planned so far
	Items    uint64 `json:"items"`
	Complete bool   `json:"complete"` // planning has finished
	// Growing says that all that is planned so far is merged, and that more may be
	// appended. GrowthAsked is the number of source objects that the plan had when it
	// was last asked to grow.
	Growing     bool `json:"growing,omitempty"`
	GrowthAsked int  `json:"growth,omitempty"`

	NextShard      int               `json:"next"`             // the first shard that dispatch has not come to
	SentAlone      bool              `json:"alone,omitempty"`  // some were sent to the work queue: no run shared the pool
	FrozenFrontier int               `json:"frozen,omitempty"` // NextShard when the end began
	InFlight       schedule.InFlight `json:"in_flight"`
	schedule.Gaps                    // the shards below NextShard that constraints held back
	// Pruned are the variants whose shards are not sent, from which shard on. PrunedShards is
	// how many of them are done without having been sent.
	Pruned       schedule.Pruned `json:"pruned,omitempty"`
	PrunedShards int             `json:"pruned_shards,omitempty"`
	// Looks is how many looks of the run are decided, and LooksAsked how many were asked for.
	Looks      int          `json:"looks,omitempty"`
	LooksAsked int          `json:"looks_asked,omitempty"`
	Done       CommitLog    `json:"done"`
	Counts     shard.Counts `json:"counts"` // items of role 0, tokens of all roles
	// Allowances are what the open shards may spend; nil in a run without a budget.
	Allowances Allowances `json:"allowances,omitempty"`
	// ControlMicroUSD is what the functions and the requests to stores cost, in millionths
	// of a dollar; 0 in a run without a budget in dollars.
	ControlMicroUSD int64 `json:"control_micro_usd,omitempty"`
	// MostRequests is how many requests the run's workers could send at once at most, as far as that
	// is below Rules.Constraints.MaxInFlight; 0 in a run without that limit.
	MostRequests int `json:"most_requests,omitempty"`
	// KeptShards is how many done shards a child run keeps from its parent.
	KeptShards int `json:"kept,omitempty"`
	// Roles is the progress by role, from role 0 on; empty in a run of one role.
	Roles []RoleState `json:"roles,omitempty"`
	// FailedStreak is how many shards in a row, in the order in which they became
	// Done, have no answered item.
	FailedStreak int `json:"streak,omitempty"`
	// ShareAccepted is how many items had failed when the run was last resumed, and how
	// many were pruned since: the share of failed items counts from there.
	ShareAccepted Outcomes `json:"share_from,omitzero"`

	Control         uint64    `json:"control,omitempty"` // the newest control sequence that was applied
	GraceUntil      time.Time `json:"grace_until,omitzero"`
	StopRequestedAt time.Time `json:"stop_at,omitzero"`  // when holders could learn of the latest pause or end
	Deadline        time.Time `json:"deadline,omitzero"` // copied from Rules, for reclaim
	// Retries is how many times in a row a missing plan or missing output files
	// were requested again.
	Retries   int       `json:"asked,omitempty"`
	Steps     uint64    `json:"steps"`
	SavedAt   time.Time `json:"saved_at"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// FinalizingAt is when all items had ended and the output files were begun.
	FinalizingAt time.Time `json:"finalizing_at,omitzero"`
	// History is how the run went on so far, for plots. It decides nothing.
	History History `json:"history,omitzero"`
	Effects Effects `json:"effects,omitempty"`
}

// Outcomes counts items by how they ended.
type Outcomes struct {
	OK     int `json:"ok,omitempty"`
	Failed int `json:"failed,omitempty"`
}

// New returns the state of a run before its first step.
func New(id identity.RunID) State {
	return State{Schema: Schema, Run: id, Phase: Planning}
}

// Open returns the shards that were sent and are not done, in order.
func (s State) Open() []interval.Range { return s.openBelow(s.NextShard) }

// openBelow returns the shards below n that were sent and are not done, in order.
func (s State) openBelow(n int) (open []interval.Range) {
	for _, r := range s.Done.Set.Missing(interval.Range{Lo: 0, Hi: n}) {
		open = append(open, s.Skipped.Missing(r)...)
	}
	return open
}

// WasSent reports whether shard n was ever sent, or was passed over because its
// variant is pruned.
func (s State) WasSent(n int) bool { return n < s.NextShard && !s.Skipped.Has(n) }

// Sent returns how many shards were sent, or passed over because their variant is
// pruned.
func (s State) Sent() int { return s.NextShard - s.Skipped.Len() }

// AllSent reports whether every shard of the run was sent, and none waits to be sent
// again for a larger allowance.
func (s State) AllSent() bool {
	return s.Complete && s.NextShard >= s.Shards && s.Skipped.IsZero() && len(s.Allowances.Waiting()) == 0
}

// EffectKind is what an effect does. Example: "send".
type EffectKind string

// The effects. Each is a hint or idempotent: performing it twice, or late, changes
// no result.
const (
	Send     EffectKind = "send"     // send work messages for the shards of Range, with Generation, Urgent and Allowance
	SetPause EffectKind = "pause"    // set the desired state in control/<run> to a pause, for the reason Why
	SetEnd   EffectKind = "end"      // set the desired state in control/<run> to the end, for the reason Why
	Seal     EffectKind = "seal"     // end every open shard of Range without a result
	Replan   EffectKind = "replan"   // ask the function plan to continue
	Finalize EffectKind = "finalize" // ask the function finalize to write the output files
	// RecordPruned writes the record that the variant in Pruned is pruned, for the reason
	// Why.
	RecordPruned EffectKind = "pruned"
	// Continue evaluates the run again at once: the step had looked at as many shards
	// as one step may.
	Continue EffectKind = "continue"
)

// Effect is one action to perform after the state is saved.
type Effect struct {
	Kind       EffectKind
	Range      *interval.Range         // of Send and Seal: shards; nil otherwise
	Pruned     *schedule.PrunedVariant // of RecordPruned; nil otherwise
	Generation int                     // of Send
	Urgent     bool                    // of Send: to the queue that workers ask first
	Allowance  cost.Spend              // of Send: what each shard may spend; zero in a run without a budget
	Why        string                  // of SetPause, SetEnd, Seal and RecordPruned
	Refused    string                  // of SetPause: what all requests met, if that is why
}

// EventKind is what an event reports. Example: "done".
type EventKind string

// The kinds of events.
const (
	ShardDone     EventKind = "done"      // the shard is Done, with Counts
	ShardLost     EventKind = "lost"      // the shard that was sent with Generation must be sent again
	ShardReleased EventKind = "released"  // its holder gave the shard back: send it again at once
	ShardUsedUp   EventKind = "used_up"   // it was given back because it has Spent its Allowance
	ItemFailed    EventKind = "failed"    // an item of the shard failed
	InputMissing  EventKind = "missing"   // the input or the model is gone: pause, for the reason Why
	InputChanged  EventKind = "changed"   // the input is not what was planned: end, for the reason Why
	Finalized     EventKind = "finalized" // the output files are written, with Counts
	Reevaluate    EventKind = "look"      // evaluate the run now
	Wakeup        EventKind = "ring"      // evaluate it, and request again what is outstanding
	// RequestsRefused pauses the run, unless another worker has answers: no request of the
	// one that reports it is answered. Outcome names what they met.
	RequestsRefused EventKind = "refused"
	VariantPruned   EventKind = "pruned" // send no shard of Variant from Shard on, for the reason Why
)

// Event is one report about a run. Which fields hold a value depends on Kind.
type Event struct {
	Kind         EventKind
	Shard        int
	Generation   int        // ShardLost: the generation that was judged
	Vanished     bool       // ShardLost: its worker is gone without a word
	Allowance    cost.Spend // ShardUsedUp
	Spent        cost.Spend // ShardUsedUp: by all its attempts
	Counts       shard.Counts
	Role         int            // of the Shard
	Roles        []shard.Counts // Finalized: by role; empty in a run of one role
	RefusedLines int            // Finalized: lines of the input that are not items
	Variant      uint32
	Why          string
	Outcome      string    // RequestsRefused: what the requests met
	Control      uint64    // RequestsRefused: the control sequence under which they met it
	AnsweredAt   time.Time // RequestsRefused: when another worker had an answer last; zero: none known
	MessageIndex int       // the caller's own: Step returns it with a rejected event
}

// Observed is what the documents of a run say at the time of a step.
type Observed struct {
	// Of plan/<run>: what is planned so far.
	Shards         int
	Items          uint64
	Complete       bool       // planning has finished
	Roles          []RolePlan // by role, from role 0 on; empty in a run of one role
	Growing        bool       // all of it is merged, and more may be appended
	Sources        int        // the objects that it has ranges of
	Looks          Looks      // of a run that prunes
	PlanProblem    string     // why planning cannot continue; "" if it can
	PlanProblemEnd Reason     // why the run must end because of the problem; "" to pause it
	// PlanProblemControl is the control sequence under which planning met the
	// problem.
	PlanProblemControl uint64

	// Of a child run: which shards from NextShard to KeptUntil it keeps from its parent,
	// in order, and the counts of all that it keeps. KeptUntil is 0 for other runs.
	Kept       []interval.Range
	KeptUntil  int
	KeptCounts shard.Counts
	KeptRoles  []KeptRole // KeptCounts by role, from role 0 on; empty in a run of one role

	// Of control/<run>: the desired state.
	Sequence      uint64
	ControlAt     time.Time // when it was written, by the clock of its writer
	DesiredPause  bool
	DesiredEnd    Reason // "" if the end is not desired
	ControlReason string

	// Of the heartbeats.
	Pool           int // how many shards the workers of the pools with open shards can hold at once
	Workers        int // living workers of those pools
	Unacknowledged int // living workers that hold shards of the run and have not applied Sequence
	InFlight       int // requests of the run in flight
	Requests       int // that those workers send at once at most

	// Of share/<pool> and the heartbeats.
	Sharing schedule.Sharing

	// Of the shard tables: the attributes that ScanPages names, and the outline of the
	// pages that were read.
	Rows    schedule.Pages
	Outline schedule.Outline
}

// Rules are the run's limits, from its manifest and the deployment.
type Rules struct {
	Deadline time.Time // zero: none
	// Grace is for requests in flight, from when their holder learns of a pause or
	// an end.
	Grace time.Duration
	// Settle is the time after a pause or an end until the heartbeat of every living
	// worker lists the shards that it claimed before.
	Settle time.Duration
	// Budget is what the run may spend; a part that is 0 sets no limit. Prices say what the
	// control plane costs.
	Budget   cost.Spend
	Prices   cost.Prices
	FailFast bool // the first failed item, or worker that vanishes with a shard, ends the run
	// FailedShards is how many shards in a row without an answered item pause the
	// run; 0: off.
	FailedShards int
	// FailedShare is the share of failed items beyond which the run pauses; 0: off.
	FailedShare float64
	// Constraints are those of the run's kind.
	Constraints schedule.Constraints
	// OutputRoles are the roles beyond role 0 whose items are users' items: their counts are
	// those of the run. Of other roles, the run's counts take in the tokens alone.
	OutputRoles []int
}

// hasOutput reports whether a role's items are users' items.
func (r Rules) hasOutput(role int) bool { return role == 0 || slices.Contains(r.OutputRoles, role) }
