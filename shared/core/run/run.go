// Package run is the state machine of a run, and the only decider of its
// progress: the coordinator's pure core.
//
//	Planning ─▶ Running ⇄ Pausing/Paused ─▶ Ending ─▶ Finalizing ─▶ Completed | CompletedWithErrors |
//	               │                                                Stopped | Expired | OverBudget | Failed
//	               └─▶ Interrupted (a pause that not all workers acknowledged in time; resumable)
//
// Step takes the state as saved, the documents as they are, the events that
// came and `now`; it returns the new state, whose Effects are to be performed
// after it is saved. Events may come late, twice, out of order or never:
// documents decide, so Step only lets them tell where to look. The package
// does no I/O, reads no clock and throws no dice.
package run

import (
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// Schema is the version of the coordinator document.
const Schema = 1

// Phase is where a run is. Example: "running".
type Phase string

// The phases.
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

// Ended reports whether the phase is terminal.
func (p Phase) Ended() bool {
	switch p {
	case Completed, CompletedWithErrors, Stopped, Expired, OverBudget, Failed:
		return true
	}
	return false
}

// Succeeded reports whether a run that ended in the phase did all it was asked to.
func (p Phase) Succeeded() bool { return p == Completed }

// dispatches reports whether new shards may be sent.
func (p Phase) dispatches() bool { return p == Planning || p == Running }

// Reason is why a run ends. Example: "stopped".
type Reason string

// The reasons.
const (
	ReasonDone         Reason = "done"
	ReasonStopped      Reason = "stopped"
	ReasonExpired      Reason = "expired"
	ReasonBudget       Reason = "budget"
	ReasonFailFast     Reason = "fail_fast"
	ReasonInputChanged Reason = "input_changed"
	ReasonInputBroken  Reason = "input_broken"
)

// Class is the class of the items that the end left without an answer.
func (r Reason) Class() fault.Class {
	switch r {
	case ReasonExpired:
		return fault.Expired
	case ReasonBudget:
		return fault.Budget
	case ReasonInputChanged:
		return fault.InputChanged
	}
	return fault.CanceledItem
}

// Phase is the terminal phase of a run that ended for the reason, with so many
// failed items.
func (r Reason) Phase(failed int) Phase {
	switch r {
	case ReasonDone:
		if failed > 0 {
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

// State is the document coordinator/<run>, at most 16 KiB. Coordinate alone
// writes it.
type State struct {
	Schema  int            `json:"schema"`
	Run     identity.RunID `json:"run"`
	Phase   Phase          `json:"phase"`
	Reason  Reason         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"` // for people: why it paused or failed
	Warning string         `json:"warning,omitempty"` // for people: why it goes slower than its pool could

	Shards   int    `json:"shards"` // planned so far
	Items    uint64 `json:"items"`
	Complete bool   `json:"complete"` // the plan is

	NextShard      int               `json:"next"` // shards below were dispatched
	FrozenFrontier int               `json:"frozen,omitempty"`
	InFlight       schedule.InFlight `json:"in_flight"`
	Done           CommitLog         `json:"done"`
	Counts         shard.Counts      `json:"counts"`
	FailedStreak   int               `json:"streak,omitempty"` // shards in a row, as they arrived, without an answered item

	Control         uint64    `json:"control,omitempty"` // newest control sequence acted on
	GraceUntil      time.Time `json:"grace_until,omitzero"`
	StopRequestedAt time.Time `json:"stop_at,omitzero"`  // when the pause or the end began
	Deadline        time.Time `json:"deadline,omitzero"` // the rules', for who looks whether it is due
	Retries         int       `json:"asked,omitempty"`   // times in a row that a plan or files that did not come were asked for again
	Steps           uint64    `json:"steps"`
	SavedAt         time.Time `json:"saved_at"`
	StartedAt       time.Time `json:"started_at,omitzero"`
	EndedAt         time.Time `json:"ended_at,omitzero"`
	Effects         Effects   `json:"effects,omitempty"`
}

// New is the state of a run that nothing has happened to yet.
func New(id identity.RunID) State {
	return State{Schema: Schema, Run: id, Phase: Planning}
}

// Open returns the shards that were dispatched and are not done, in order.
func (s State) Open() []interval.Range {
	return s.Done.Set.Missing(interval.Range{Lo: 0, Hi: s.NextShard})
}

// EffectKind is what an effect does. Example: "send".
type EffectKind string

// The effects. All are hints or idempotent: performing one twice, or late,
// changes no result.
const (
	Send     EffectKind = "send"     // messages for the shards of Range, with Generation
	SetPause EffectKind = "pause"    // make control/<run> desire a pause, for Why
	SetEnd   EffectKind = "end"      // make control/<run> desire the end, for Why
	Seal     EffectKind = "seal"     // end every open shard of Range without a result
	Replan   EffectKind = "replan"   // ask plan to go on
	Finalize EffectKind = "finalize" // ask finalize to write what users read
)

// Effect is one thing to do after the state is saved.
type Effect struct {
	Kind       EffectKind
	Range      *interval.Range // of Send and Seal; nil otherwise
	Generation int
	Why        string
}

// EventKind is what an event says. Example: "done".
type EventKind string

// The kinds of events.
const (
	ShardDone     EventKind = "done"     // a shard is Done, with Counts
	ShardLost     EventKind = "lost"     // a shard sent with Generation must be sent again
	ShardReleased EventKind = "released" // its holder gave it back: the same, at once
	InputMissing  EventKind = "missing"  // the input is gone, or the model: pause
	InputChanged  EventKind = "changed"  // the input is not what was planned: end
	Finalized     EventKind = "finalized"
	Reevaluate    EventKind = "look" // nothing in particular: look now
	Wakeup        EventKind = "ring" // the same, and ask again for what is outstanding
)

// Event is one thing that was said to have happened.
type Event struct {
	Kind         EventKind
	Shard        int
	Generation   int // ShardLost: the generation that was judged
	Counts       shard.Counts
	Why          string
	MessageIndex int // the caller's own mark; Step only hands it back with a rejected event
}

// Observed is what the documents say now.
type Observed struct {
	// Plan as merged so far.
	Shards         int
	Items          uint64
	Complete       bool
	PlanProblem    string // why the plan can't go on; "" if it can
	PlanProblemEnd Reason // the reason to end that the problem is, or ""
	// PlanProblemControl is the control sequence under which planning met the problem.
	PlanProblemControl uint64
	// Control as desired.
	Sequence      uint64
	DesiredPause  bool
	DesiredEnd    Reason // "" if the end is not desired
	ControlReason string
	// Pool is how many shards the run's pool can hold at once.
	Pool int
	// Unacknowledged is how many living workers hold shards of the run and
	// have not acted on Sequence yet.
	Unacknowledged int
}

// Rules are the run's own, from its manifest.
type Rules struct {
	Deadline time.Time     // zero is none
	Grace    time.Duration // for requests in flight, from when their holder learns of a stop
	Settle   time.Duration // by then every living worker's heartbeat lists what it claimed before a stop
	Tokens   int64         // budget; 0 is none
	FailFast bool
	// FailedShards is how many shards in a row without an answered item pause the
	// run; 0 is off.
	FailedShards int
}
