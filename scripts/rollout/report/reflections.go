package report

import (
	"fmt"
	"slices"

	"rollout/shared/core/gate"
	"rollout/shared/core/guidance"
	"rollout/shared/rollout"
	"rollout/shared/text"
)

// change is a reflection as the page shows it: what it looked at, what it proposed, and how that ended.
type change struct {
	Number, Batch, Epoch int
	Mission              string
	Step, NewStep        int
	Parent               string // what it was begun with; "" is the guidance of Step
	Result               rollout.Result
	Why                  string
	Gated                bool
	Tickets              []changeTicket
	MoreTickets          int
	Candidates           []candidate
	MoreCandidates       int
	Before, After        *rollout.Measure // on the holdout; nil if it was not measured
}

// changeTicket is a ticket that a reflection looked at.
type changeTicket struct{ Name, Group, Why, Prompt string }

// candidate is a plan of a reflection.
type candidate struct {
	Number         int
	Won            bool
	Operations     []operation
	MoreOperations int
	Refusal        string
	Comparisons    []comparison
}

// operation is a change of the guidance, and its reasons.
type operation struct {
	Kind     guidance.Kind
	Entries  []int
	Text     string
	Reason   string
	Evidence []string
	More     int // tickets of the evidence that are left out
}

// comparison is how a candidate did on tickets that it was not made from.
type comparison struct {
	Name string // "gate" or "confirmation"
	gate.Verdict
	Lost, Won []string // tickets that became wrong and right, the first of each
}

// Bounds of what is shown of a reflection.
const (
	maxChanges    = 100 // accepted reflections, and of the others
	maxCases      = 32  // as many as a reflection may look at
	maxCandidates = 4
	maxOperations = 24
	maxEvidence   = 12
	entryBytes    = 600
)

// changes are the reflections of a run.
type changes struct {
	results  map[resultKey]int // how many reflections ended so
	accepted []change          // the first ones
	others   []change          // the last ones
	more     int
	holdout  map[stepKey]rollout.Measure // by what was measured
}

type resultKey struct {
	mission string
	result  rollout.Result
}

type stepKey struct {
	mission string
	step    int
}

// add takes in a row of reflection.jsonl.
func (c *changes) add(r rollout.Record) {
	c.results[resultKey{r.Mission, r.Result}]++
	if r.Holdout != nil && r.NewStep > 0 {
		c.holdout[stepKey{r.Mission, r.NewStep}] = *r.Holdout
	}
	if r.Result == rollout.ResultAccepted {
		if len(c.accepted) == maxChanges {
			c.more++
			return
		}
		c.accepted = append(c.accepted, changeOf(r))
		return
	}
	if len(c.others) == maxChanges {
		c.others, c.more = c.others[1:], c.more+1
	}
	c.others = append(c.others, changeOf(r))
}

// list returns the reflections that are shown, in the order of the run, with what is known of the holdout.
func (c *changes) list() []change {
	out := slices.Concat(c.accepted, c.others)
	slices.SortStableFunc(out, func(x, y change) int { return x.Number - y.Number })
	for i := range out {
		o := &out[i]
		if before, ok := c.holdout[stepKey{o.Mission, o.Step}]; ok && o.After != nil {
			o.Before = &before
		}
	}
	return out
}

// changeOf returns what is shown of a reflection.
func changeOf(r rollout.Record) change {
	c := change{Number: r.Number, Batch: r.Batch + 1, Epoch: r.Epoch + 1, Mission: r.Mission, Step: r.Step,
		NewStep: r.NewStep, Result: r.Result, Why: text.Truncate(r.Why, textBytes, "…"), Gated: r.Gated, After: r.Holdout,
		Parent: frontName(r.Parent)}
	cases, more := first(r.Cases, maxCases)
	c.MoreTickets = more
	for _, t := range cases {
		c.Tickets = append(c.Tickets, changeTicket{short(t.Ticket), text.Truncate(t.Group, nameBytes, "…"),
			text.Truncate(t.Why, textBytes, "…"), ""})
	}
	for n, from := range r.Candidates {
		won := r.Result == rollout.ResultAccepted && n == r.Best
		if len(c.Candidates) == maxCandidates && !won {
			c.MoreCandidates++
			continue
		}
		c.Candidates = append(c.Candidates, candidateOf(n, won, from))
	}
	return c
}

// frontName returns the name of a guidance of the front with the numbers that the page gives to reflections and
// candidates: they count from 1.
func frontName(name string) string {
	var reflection, candidate int
	if n, err := fmt.Sscanf(name, "r%d.%d", &reflection, &candidate); n != 2 || err != nil {
		return short(name)
	}
	return fmt.Sprintf("candidate %d of reflection %d", candidate+1, reflection+1)
}

func candidateOf(number int, won bool, from rollout.Candidate) candidate {
	c := candidate{Number: number + 1, Won: won}
	if from.Refusal != "" {
		c.Refusal = from.Refusal + ": " + text.Truncate(from.Message, textBytes, "…")
	}
	operations, more := first(from.Plan.Operations, maxOperations)
	c.MoreOperations = more
	for _, op := range operations {
		o := operation{Kind: op.Kind, Text: text.Truncate(op.Text, entryBytes, "…"),
			Reason: text.Truncate(op.Reason, textBytes, "…")}
		o.Entries, _ = first(op.Entries, maxEvidence)
		evidence, more := first(op.Evidence, maxEvidence)
		for _, e := range evidence {
			o.Evidence = append(o.Evidence, short(e))
		}
		o.More = more
		c.Operations = append(c.Operations, o)
	}
	for _, v := range []struct {
		name    string
		verdict *gate.Verdict
	}{{"gate", from.Gate}, {"confirmation", from.Confirm}} {
		if v.verdict != nil {
			c.Comparisons = append(c.Comparisons, comparisonOf(v.name, *v.verdict))
		}
	}
	return c
}

func comparisonOf(name string, v gate.Verdict) comparison {
	c := comparison{Name: name, Verdict: v}
	for _, f := range v.Flipped {
		to := &c.Won
		if f.After < f.Before {
			to = &c.Lost
		}
		if len(*to) < maxEvidence {
			*to = append(*to, short(f.Ticket))
		}
	}
	c.Flipped = nil
	return c
}

// first returns the first n of a list, and how many follow.
func first[T any](list []T, n int) (head []T, more int) {
	n = min(n, len(list))
	return list[:n], len(list) - n
}
