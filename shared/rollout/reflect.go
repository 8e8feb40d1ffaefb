package rollout

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/guidance"
	"rollout/shared/dialect"
	"rollout/shared/jsonl"
)

// reflect begins a reflection of a mission.
func (g Growing) reflect(ctx context.Context, s Stage, mission string) (Stage, error) {
	size := g.Manifest.Config.Reflection.BatchSize
	cases, rest, err := s.Pending[mission].take(ctx, g.Blobs, g.Manifest.Run, mission, size)
	if err != nil {
		return s, err
	}
	s.Pending[mission] = rest
	if rest.Count == 0 {
		delete(s.Pending, mission)
	}
	next := s.after(Summarising, len(cases))
	r := Reflection{Number: s.Reflections, Mission: mission, Step: s.Guidance[mission], Cases: cases}
	if r.Parent, err = g.parent(ctx, s, mission); err != nil {
		return s, err
	}
	if r.Parent != nil {
		next = s.after(Reanswering, len(cases)*s.Members)
	}
	next.Reflection = &r
	next.Reflections++
	return next, nil
}

// unusable are the answers to a stage of reflection that cannot be used.
type unusable struct {
	failed  string // the first item without an answer: its class and message
	refused string // the last answer that was refused: why
}

// String says why a stage has no usable answer.
func (u unusable) String() string {
	return cmp.Or(u.refused, u.failed, "the model answered nothing")
}

// answers gives what a model answered to the items of a stage of reflection to use, which
// returns a *guidance.Refused for an answer that it cannot use. It counts these, and the
// items without an answer. Only one answer is in memory at a time, as a hostile one may be
// large.
func (g Growing) answers(s Stage, use func(item int, answer []byte) error) (u unusable, err error) {
	item := -1
	count := func(cause string) {
		if s.Reflection.Unusable == nil {
			s.Reflection.Unusable = map[string]int{}
		}
		s.Reflection.Unusable[string(s.Kind)+"."+cause]++
	}
	for o, err := range g.Outcomes {
		if err != nil {
			return u, err
		}
		item++
		if o.Class != "" {
			count(string(o.Class))
			if f, ok := dialect.ReadFailure(dialect.Plain, o.Row); ok && u.failed == "" {
				u.failed = string(o.Class) + ": " + f.Message
			}
			continue
		}
		said, err := dialect.ReadCompletions(o.Row)
		if err != nil {
			return u, err
		}
		if said[0].Text == "" {
			count("empty")
			continue
		}
		var refused *guidance.Refused
		if err := use(item, []byte(said[0].Text)); errors.As(err, &refused) {
			count(string(refused.Refusal))
			u.refused = refused.Error()
		} else if err != nil {
			return u, err
		}
	}
	return u, nil
}

// fail ends a reflection without a usable plan.
func (g Growing) fail(ctx context.Context, s Stage, result Result, why string) (Stage, error) {
	over := s.Reflection.over(s, g.gates(s), result, why)
	switch result {
	case ResultFailed, ResultRefused:
		s.Failed++
	default:
		s.Failed = 0
	}
	return g.goOn(ctx, s, over)
}

// gates reports whether the reflection's candidates are compared.
func (g Growing) gates(s Stage) bool { return s.Pools[s.Reflection.Mission].Gate.Len() > 0 }

// summarised takes in the summaries of a reflection.
func (g Growing) summarised(ctx context.Context, s Stage) (Stage, error) {
	r := s.Reflection
	unusable, err := g.answers(s, func(item int, answer []byte) error {
		summary, err := guidance.ParseSummary(answer)
		if err == nil {
			r.Reports = append(r.Reports, guidance.Report{Ticket: r.Cases[item].Key, Summary: summary})
		}
		return err
	})
	if err != nil {
		return s, err
	}
	if len(r.Reports) == 0 {
		return g.fail(ctx, s, ResultFailed, "no summary can be used: "+unusable.String())
	}
	return s.after(Critiquing, g.Manifest.Config.Reflection.Candidates), nil
}

// critiqued takes in the operations that were proposed.
func (g Growing) critiqued(ctx context.Context, s Stage) (Stage, error) {
	r, lim, proposed := s.Reflection, limitsOf(*g.Manifest.Config.Reflection), false
	unusable, err := g.answers(s, func(_ int, answer []byte) error {
		ops, err := guidance.ParseProposals(answer, lim)
		if err == nil {
			r.Proposals = append(r.Proposals, ops)
			proposed = proposed || len(ops) > 0
		}
		return err
	})
	switch {
	case err != nil:
		return s, err
	case len(r.Proposals) == 0:
		return g.fail(ctx, s, ResultFailed, "no critique can be used: "+unusable.String())
	case !proposed:
		return g.fail(ctx, s, ResultNoChange, "nothing was proposed")
	}
	return s.after(Consolidating, len(r.Proposals)), nil
}

// consolidated takes in the plans, and makes the candidates of them.
func (g Growing) consolidated(ctx context.Context, s Stage) (Stage, error) {
	c, r := g.Manifest.Config, s.Reflection
	old, err := readGuidance(ctx, g.Blobs, g.Manifest.Run, r.Mission, r.Step)
	if err != nil {
		return s, err
	}
	p := planned{present: old}
	if p.basis, err = g.basis(ctx, s); err != nil {
		return s, err
	}
	if g.hasFront(s, r.Mission) {
		if p.known, err = g.known(ctx, s, old); err != nil {
			return s, err
		}
	}
	result, why := ResultNoChange, "the plans change nothing"
	unusable, err := g.answers(s, func(_ int, answer []byte) error {
		candidate, err := g.candidate(ctx, s, p, answer)
		if err != nil {
			return err
		}
		r.Candidates = append(r.Candidates, candidate)
		if candidate.Refusal != "" {
			result, why = ResultRefused, candidate.Refusal+": "+candidate.Message
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if len(r.Candidates) == 0 {
		return g.fail(ctx, s, ResultFailed, "no plan can be used: "+unusable.String())
	}
	viable := r.viable()
	if len(viable) == 0 {
		return g.fail(ctx, s, result, why)
	}
	r.Best = viable[0]
	if !g.gates(s) {
		return g.accept(ctx, s)
	}
	number := r.Number
	if g.hasFront(s, r.Mission) { // its scores are of the same tickets
		number = 0
	}
	r.Pool = window(s.Pools[r.Mission].Gate, c.GateOf().Tickets, number)
	return s.after(Gating, (1+len(viable))*r.Pool.Len()*s.Members), nil
}

// viable returns the candidates that have a guidance.
func (r Reflection) viable() (numbers []int) {
	for n, c := range r.Candidates {
		if c.Guidance != nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// planned is what plans are made for.
type planned struct {
	present guidance.Guidance // which a candidate may replace
	basis   guidance.Guidance // which the plans change
	known   []string          // texts of guidances that were compared before
}

// candidate makes a candidate of the plan in an answer.
func (g Growing) candidate(ctx context.Context, s Stage, p planned, answer []byte) (c Candidate, err error) {
	r, lim := s.Reflection, limitsOf(*g.Manifest.Config.Reflection)
	refuse := func(err error) (Candidate, error) {
		var refused *guidance.Refused
		if !errors.As(err, &refused) {
			return c, err
		}
		c.Guidance, c.Refusal, c.Message = nil, string(refused.Refusal), refused.Message
		return c, nil
	}
	if c.Plan, err = guidance.ParsePlan(answer, lim); err != nil {
		return refuse(err)
	}
	known := func(key string) bool { return slices.ContainsFunc(r.Cases, func(c Case) bool { return c.Key == key }) }
	next, err := p.basis.Apply(c.Plan, guidance.Applying{Limits: lim, Evidence: known})
	if err != nil {
		return refuse(err)
	}
	if next.Step == p.present.Step || slices.Contains(p.known, next.Text()) {
		return c, nil
	}
	next.From = p.present.ContentID().String()
	same := func(c Candidate) bool {
		return c.Guidance != nil && string(c.Guidance.Encode()) == string(next.Encode())
	}
	if slices.ContainsFunc(r.Candidates, same) {
		return c, nil // it is compared once
	}
	if err := g.copies(ctx, r.Mission, guidance.NewCopyGuard(c.Plan, p.basis)); err != nil {
		return refuse(err)
	}
	c.Guidance = &next
	return c, nil
}

// copies returns the refusal of a plan that copies a ticket of the mission.
func (g Growing) copies(ctx context.Context, mission string, guard *guidance.CopyGuard) error {
	if guard.Empty() {
		return nil
	}
	r, _, err := g.Blobs.Get(ctx, ticketsKey(g.Manifest.Run), blob.GetOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	lines := jsonl.NewScanner(r, jsonl.Options{})
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		t, err := ParseTicket(l.Bytes, g.Manifest.Config.Missions)
		if err != nil {
			return err
		}
		if t.Mission != mission {
			continue
		}
		if run, copied := guard.Ticket(contentOf(t)); copied {
			return guard.Refusal(t.Group, run)
		}
	}
}

// accept makes the best candidate the guidance of its mission.
func (g Growing) accept(ctx context.Context, s Stage) (Stage, error) {
	r := s.Reflection
	best := *r.Candidates[r.Best].Guidance
	if err := saveGuidance(ctx, g.Blobs, g.Manifest.Run, best); err != nil {
		return s, err
	}
	if g.hasFront(s, r.Mission) {
		if err := g.promote(ctx, &s, best.Step); err != nil {
			return s, err
		}
	}
	s.Guidance[r.Mission] = best.Step
	delete(s.Used, r.Mission)
	s.Learnt, s.Failed = true, 0
	s.Accepted++
	if h := s.Pools[r.Mission].Holdout; h.Len() > 0 {
		return s.after(Measuring, h.Len()*s.Members), nil
	}
	return g.goOn(ctx, s, g.accepted(s, nil))
}

// accepted returns the record of a reflection whose best candidate is the guidance.
func (g Growing) accepted(s Stage, holdout *Measure) *Record {
	r := s.Reflection
	over := r.over(s, g.gates(s), ResultAccepted, "")
	over.NewStep, over.Holdout = r.Candidates[r.Best].Guidance.Step, holdout
	return over
}
