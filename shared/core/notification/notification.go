// Package notification decides what people are told about runs and about the machines of
// pools, and when each destination is asked to take it.
//
//	state of a run ────▶ RunMemory.Next ───▶ changes ─┐
//	problem of a pool ─▶ PoolMemory.Next ──▶ a change ┴─▶ numbered events ─▶ Delivery, one for each destination
//
// The memories say what was told before, so that looking at the same state again tells
// nothing. The package is pure: it has no clock and sends nothing.
package notification

import (
	"maps"
	"time"

	"rollout/shared/core/run"
)

// Kind is what people are told. Example: "run_paused".
type Kind string

// The kinds about runs.
const (
	RunCompleted Kind = "run_completed" // with or without failed items
	RunFailed    Kind = "run_failed"    // also for its deadline or its budget, or because it was refused
	RunStopped   Kind = "run_stopped"   // a user stopped it
	RunPaused    Kind = "run_paused"    // with the reason; also if not all workers acknowledged it in time
	BudgetLow    Kind = "budget_low"    // BudgetShare of a budget is spent
)

// BudgetShare is the share of a budget from which on people are told that little is left.
const BudgetShare = 0.8

// Budget is how much of a limit of a run is spent.
type Budget struct {
	Name  string // the key under [limits]. Example: "tokens"
	Used  float64
	Limit float64
}

// low reports whether little of the budget is left.
func (b Budget) low() bool { return b.Limit > 0 && b.Used >= BudgetShare*b.Limit }

// RunView is what of a run's state can be told.
type RunView struct {
	Phase    run.Phase
	PausedAt time.Time // when the latest pause began
	Budgets  []Budget
}

// RunMemory is what was told about a run.
type RunMemory struct {
	PausedAt time.Time          `json:"paused_at,omitzero"` // of the pause that was told last
	Budgets  map[string]float64 `json:"budgets,omitempty"`  // the limits of budgets that were low, by name
	Ended    bool               `json:"ended,omitempty"`
}

// Change is one thing to tell about a run.
type Change struct {
	Kind   Kind
	Budget Budget // of BudgetLow
}

// Next returns what to tell about a run, in order, and the memory after that. A pause is told
// once it is settled, and each pause once; a budget again if its limit was raised and little
// of the new one is left; the end once, and nothing after it.
func (m RunMemory) Next(v RunView) (RunMemory, []Change) {
	var out []Change
	switch {
	case m.Ended:
		return m, nil
	case v.Phase.Ended():
		m.Ended = true
		return m, []Change{{Kind: endKind(v.Phase)}}
	}
	for _, b := range v.Budgets {
		if told, ok := m.Budgets[b.Name]; b.low() && (!ok || b.Limit > told) {
			m.Budgets = maps.Clone(m.Budgets)
			if m.Budgets == nil {
				m.Budgets = map[string]float64{}
			}
			m.Budgets[b.Name] = b.Limit
			out = append(out, Change{BudgetLow, b})
		}
	}
	if paused := v.Phase == run.Paused || v.Phase == run.Interrupted; paused && !v.PausedAt.Equal(m.PausedAt) {
		m.PausedAt = v.PausedAt
		out = append(out, Change{Kind: RunPaused})
	}
	return m, out
}

// endKind returns the kind of an end in the phase.
func endKind(p run.Phase) Kind {
	switch p {
	case run.Completed, run.CompletedWithErrors:
		return RunCompleted
	case run.Stopped:
		return RunStopped
	}
	return RunFailed
}
