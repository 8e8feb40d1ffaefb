package rollout

import (
	"rollout/shared/config"
	"rollout/shared/core/gate"
	"rollout/shared/core/guidance"
)

// Reflection is an attempt to improve the guidance of a mission, while it is under way.
type Reflection struct {
	Number  int    `json:"number"` // from 0
	Mission string `json:"mission"`
	Step    int    `json:"step"` // under which it was begun, and that it may replace
	// Parent is what it begins with; nil is the guidance of Step. See front.go.
	Parent *Parent `json:"parent,omitempty"`
	// Cases are the tickets that it looks at. Reports are what was summarised of them.
	Cases   []Case            `json:"cases"`
	Reports []guidance.Report `json:"reports,omitempty"`
	// Proposals are the operations of each candidate, before they are consolidated.
	Proposals  [][]guidance.Operation `json:"proposals,omitempty"`
	Candidates []Candidate            `json:"candidates,omitempty"`
	Best       int                    `json:"best,omitempty"` // of the candidates, from the gate on
	// Unusable counts the answers that its stages could not use, by stage and cause. Refused
	// plans are candidates. Example: "summarise.too_large".
	Unusable map[string]int `json:"unusable,omitempty"`
	// Pool are the tickets that are compared: positions in the book's pool.
	Pool Span `json:"pool,omitzero"`
}

// Case is a ticket that teaches something.
type Case struct {
	Key   string `json:"key"` // Example: "t17"
	Group string `json:"group_id"`
	// Offset and Length are where its line stands among the tickets.
	Offset uint64 `json:"offset"`
	Length uint32 `json:"length"`
	guidance.Case
}

// Candidate is a plan and the guidance that it would make.
type Candidate struct {
	Plan     guidance.Plan      `json:"plan"`
	Guidance *guidance.Guidance `json:"guidance,omitempty"` // nil if it is refused
	// Refusal and Message say why a plan is refused.
	Refusal string        `json:"refusal,omitempty"`
	Message string        `json:"message,omitempty"`
	Gate    *gate.Verdict `json:"gate,omitempty"`
	Confirm *gate.Verdict `json:"confirm,omitempty"`
}

// Result is how a reflection ended.
type Result string

// The results.
const (
	ResultAccepted Result = "accepted" // the guidance has a new step
	ResultNoChange Result = "no_change"
	ResultRefused  Result = "refused"  // no candidate kept to the rules
	ResultRejected Result = "rejected" // no candidate was shown to be better
	ResultFailed   Result = "failed"   // a stage had no usable answer
)

// Record is a reflection that is over: a row of ReflectionFile.
type Record struct {
	Number  int    `json:"number"`
	Mission string `json:"mission"`
	Epoch   int    `json:"epoch"`
	Batch   int    `json:"batch"`
	Step    int    `json:"step"` // that it was made from, or of the front: see Parent
	// Parent is the name of the guidance of the front that it began with; "" is that of Step.
	Parent string `json:"parent,omitempty"`
	Result Result `json:"result"`
	Why    string `json:"why,omitempty"`
	// NewStep is what an accepted candidate has become; 0 if none was.
	NewStep    int         `json:"new_step,omitempty"`
	Gated      bool        `json:"gated"` // it had to win a comparison
	Cases      []CaseRef   `json:"tickets"`
	Candidates []Candidate `json:"candidates,omitempty"`
	Best       int         `json:"best"`
	// Unusable counts the answers that its stages could not use: see Reflection.
	Unusable map[string]int `json:"unusable,omitempty"`
	Holdout  *Measure       `json:"holdout,omitempty"` // of the new step
}

// CaseRef names a ticket that a reflection looked at.
type CaseRef struct {
	Ticket string `json:"ticket"`
	Group  string `json:"group_id"`
	Why    string `json:"why"`
}

// Measure is how well a guidance does on the holdout.
type Measure struct {
	Tickets int     `json:"tickets"` // that have a score
	Score   float64 `json:"score"`   // the mean over them
}

// Span is a part of a list: positions from From to To, exclusive.
type Span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Len returns how many positions it has.
func (s Span) Len() int { return s.To - s.From }

// limitsOf returns the bounds of a run's guidance.
func limitsOf(r config.Reflection) guidance.Limits {
	return guidance.Limits{Entries: r.MaxEntries, EntryBytes: r.MaxEntryBytes, TotalTokens: r.MaxTokens,
		Operations: r.MaxOperations}
}

// ruleOf returns what candidates must show.
func ruleOf(c config.Run, candidates int, seed uint64) gate.Rule {
	g := c.GateOf()
	return gate.Rule{Alpha: g.Alpha, Candidates: max(1, candidates), Resamples: g.Resamples, Seed: seed,
		MinPairs: g.MinTickets, MinGain: g.MinGain, MaxBroken: g.MaxBroken}
}

// entryUsage counts the answers that named an entry of the guidance, by its number.
type entryUsage map[int]guidance.Tally

// over returns the record of a reflection that has ended.
func (r Reflection) over(s Stage, gated bool, result Result, why string) *Record {
	out := &Record{Number: r.Number, Mission: r.Mission, Epoch: s.Epoch, Batch: s.Batch, Step: r.Step, Result: result,
		Why: why, Gated: gated, Candidates: r.Candidates, Best: r.Best, Unusable: r.Unusable}
	if r.Parent != nil {
		out.Parent = r.Parent.Name
	}
	for _, c := range r.Cases {
		out.Cases = append(out.Cases, CaseRef{c.Key, c.Group, c.Why})
	}
	return out
}
