package events

import (
	"cmp"
	"fmt"
	"math"
)

// The types of events for people and their programs, which leave the installation. No
// function acts on them.
const (
	TypeRunCompleted    Type = "rollout.run.completed.v1"
	TypeRunFailed       Type = "rollout.run.failed.v1"
	TypeRunStopped      Type = "rollout.run.stopped.v1"
	TypeRunPaused       Type = "rollout.run.paused.v1"
	TypeBudgetLow       Type = "rollout.run.budget.low.v1"
	TypeCapacityMissing Type = "rollout.pool.capacity.missing.v1"
	TypeQuotaReached    Type = "rollout.pool.quota.reached.v1"
	TypeLaunchFailed    Type = "rollout.pool.launch.failed.v1"
	TypeBootFailed      Type = "rollout.pool.boot.failed.v1"
	TypeNotifyTest      Type = "rollout.notify.test.v1"
)

// RunOutcome is what a run came to.
type RunOutcome struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Name is what users call the run; several runs may share it.
	Name string `json:"name,omitempty"`
	// Phase is how the run ended, such as "completed_with_errors".
	Phase string `json:"phase"`
	// Message says why it failed, for people.
	Message string `json:"message,omitempty"`
	// Items is how many items the run has.
	Items uint64 `json:"items"`
	// Completed is how many of them have an answer.
	Completed uint64 `json:"completed"`
	// Failed is how many of them have an error row.
	Failed uint64 `json:"failed"`
	// FailedByClass counts the failed items by class.
	FailedByClass map[string]int `json:"failed_by_class,omitempty"`
	// PromptTokens and CompletionTokens are those of all requests that were answered.
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	// CostUSD is what the run cost, in dollars, as far as it is known.
	CostUSD float64 `json:"cost_usd,omitempty"`
	// Seconds is how long it took from the first dispatch to the end.
	Seconds float64 `json:"seconds"`
	// Summary is the key of summary.json; it is absent if the run has no output files.
	Summary string `json:"summary,omitempty"`
}

// RunCompleted reports that a run has ended and that each of its items has a row: an answer
// or an error.
type RunCompleted struct{ RunOutcome }

// RunFailed reports that a run has ended early for its deadline, its budget or another
// cause, or that it was refused.
type RunFailed struct{ RunOutcome }

// RunStopped reports that a run has ended early because a user stopped it.
type RunStopped struct{ RunOutcome }

// RunPaused reports that a run has paused. It waits until it is resumed.
type RunPaused struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Name is what users call the run.
	Name string `json:"name,omitempty"`
	// Phase is "paused", or "interrupted" if not all workers acknowledged the pause in time.
	Phase string `json:"phase"`
	// Reason says why, for people.
	Reason string `json:"reason,omitempty"`
}

// BudgetLow reports that a run has spent most of one of its budgets, and goes on.
type BudgetLow struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Name is what users call the run.
	Name string `json:"name,omitempty"`
	// Budget is the key of the budget under [limits], such as "tokens".
	Budget string `json:"budget"`
	// Used is how much of it is spent.
	Used float64 `json:"used" jsonschema:"minimum=0"`
	// Limit is the whole budget.
	Limit float64 `json:"limit" jsonschema:"minimum=0"`
}

// PoolProblem says why a pool has no machine. It is sent when the problem begins, and daily
// while it lasts.
type PoolProblem struct {
	// Pool is the pool's name.
	Pool string `json:"pool"`
	// Reason says why, for people, in the cloud's words where there are any.
	Reason string `json:"reason,omitempty"`
}

// CapacityMissing reports that the cloud has no machine for a pool whose work waits.
type CapacityMissing struct{ PoolProblem }

// QuotaReached reports that the account may have no further machine for a pool.
type QuotaReached struct{ PoolProblem }

// LaunchFailed reports that a machine of a pool can't be started for another cause.
type LaunchFailed struct{ PoolProblem }

// BootFailed reports that a machine of a pool started, and that no worker started on it.
type BootFailed struct{ PoolProblem }

// NotifyTest is an event that a user sends to see whether events arrive.
type NotifyTest struct {
	// Text says so.
	Text string `json:"text,omitempty"`
}

// EventType returns the payload's type.
func (RunCompleted) EventType() Type { return TypeRunCompleted }

// EventType returns the payload's type.
func (RunFailed) EventType() Type { return TypeRunFailed }

// EventType returns the payload's type.
func (RunStopped) EventType() Type { return TypeRunStopped }

// EventType returns the payload's type.
func (RunPaused) EventType() Type { return TypeRunPaused }

// EventType returns the payload's type.
func (BudgetLow) EventType() Type { return TypeBudgetLow }

// EventType returns the payload's type.
func (CapacityMissing) EventType() Type { return TypeCapacityMissing }

// EventType returns the payload's type.
func (QuotaReached) EventType() Type { return TypeQuotaReached }

// EventType returns the payload's type.
func (LaunchFailed) EventType() Type { return TypeLaunchFailed }

// EventType returns the payload's type.
func (BootFailed) EventType() Type { return TypeBootFailed }

// EventType returns the payload's type.
func (NotifyTest) EventType() Type { return TypeNotifyTest }

func (p RunOutcome) check() error {
	if len(p.FailedByClass) > maxClasses {
		return fmt.Errorf("failed_by_class has %d classes, more than %d", len(p.FailedByClass), maxClasses)
	}
	return cmp.Or(runID(p.Run), text("name", p.Name), name("phase", p.Phase), text("message", p.Message),
		number("cost_usd", p.CostUSD), number("seconds", p.Seconds))
}

func (p RunPaused) check() error {
	return cmp.Or(runID(p.Run), text("name", p.Name), name("phase", p.Phase), text("reason", p.Reason))
}

func (p BudgetLow) check() error {
	return cmp.Or(runID(p.Run), text("name", p.Name), name("budget", p.Budget), number("used", p.Used),
		number("limit", p.Limit))
}

func (p PoolProblem) check() error { return cmp.Or(name("pool", p.Pool), text("reason", p.Reason)) }

func (p NotifyTest) check() error { return text("text", p.Text) }

// number checks a number that JSON can hold and that must not be negative.
func number(field string, x float64) error {
	if !(x >= 0) || math.IsInf(x, 1) {
		return fmt.Errorf("%s %v is not a number from 0 on", field, x)
	}
	return nil
}
