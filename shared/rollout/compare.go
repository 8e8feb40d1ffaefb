package rollout

import (
	"context"
	"fmt"
	"io"
	"math"

	"rollout/shared/core/gate"
	"rollout/shared/core/guidance"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// gated takes in the comparison of all candidates with the guidance.
func (g Growing) gated(ctx context.Context, s Stage) (Stage, error) {
	r := s.Reflection
	viable := r.viable()
	scores, err := g.versions(s, r.Pool.Len())
	if err != nil {
		return s, err
	}
	if g.hasFront(s, r.Mission) {
		if err := g.join(ctx, &s, viable, scores); err != nil {
			return s, err
		}
	}
	rule := ruleOf(g.Manifest.Config, len(viable), seedOfStage(g.Manifest.Config, r.Number, Gating, 0))
	best, gain := -1, 0.0
	for n, candidate := range viable {
		v := gate.Compare(pairs(scores[0], scores[1+n]), rule)
		r.Candidates[candidate].Gate = &v
		if v.Accepted && (best < 0 || v.Gain > gain) {
			best, gain = candidate, v.Gain
		}
	}
	if best < 0 {
		return g.fail(ctx, s, ResultRejected, "no candidate is shown to be better on the tickets of the gate")
	}
	r.Best = best
	r.Pool = window(s.Pools[r.Mission].Confirm, g.Manifest.Config.GateOf().Tickets, r.Number)
	return s.after(Confirming, 2*r.Pool.Len()*s.Members), nil
}

// confirmed takes in the comparison of the best candidate on other tickets.
func (g Growing) confirmed(ctx context.Context, s Stage) (Stage, error) {
	r := s.Reflection
	scores, err := g.versions(s, r.Pool.Len())
	if err != nil {
		return s, err
	}
	rule := ruleOf(g.Manifest.Config, 1, seedOfStage(g.Manifest.Config, r.Number, Confirming, 0))
	v := gate.Compare(pairs(scores[0], scores[1]), rule)
	best := &r.Candidates[r.Best]
	best.Confirm = &v
	if d := gate.Decide(*best.Gate, v); !d.Accepted {
		return g.fail(ctx, s, ResultRejected, "the best candidate is not shown to be better on other tickets")
	}
	return g.accept(ctx, s)
}

// scored is a ticket with the scores of its answers: NaN for one without.
type scored struct {
	ticket string
	scores []float64
}

// mean returns the mean of the scores, and false without one.
func (t scored) mean() (float64, bool) {
	sum, n := 0.0, 0
	for _, s := range t.scores {
		if !math.IsNaN(s) {
			sum, n = sum+s, n+1
		}
	}
	return sum / float64(max(1, n)), n > 0
}

// versions returns the scores of a comparison: for each version of the guidance, the
// tickets.
func (g Growing) versions(s Stage, tickets int) (out [][]scored, err error) {
	var all []scored
	err = g.groups(s, func(group Group) error {
		one := scored{ticket: ticketID(group.members[0].Number)}
		for _, m := range group.members {
			score := math.NaN()
			switch {
			case m.score != nil:
				score = *m.score
			case m.class == fault.TooLong, m.class == fault.Refused:
				score = 0 // the guidance caused it: a candidate must not win by it
			}
			one.scores = append(one.scores, score)
		}
		all = append(all, one)
		return nil
	})
	for ; len(all) > 0 && err == nil; all = all[tickets:] {
		out = append(out, all[:tickets])
	}
	return out, err
}

func pairs(before, after []scored) (out []gate.Pair) {
	for n, b := range before {
		out = append(out, gate.Pair{Ticket: b.ticket, Before: b.scores, After: after[n].scores})
	}
	return out
}

// measured takes in the scores of a guidance on its holdout.
func (g Growing) measured(ctx context.Context, s Stage) (Stage, error) {
	mission := s.Mission
	if s.Reflection != nil {
		mission = s.Reflection.Mission
	}
	versions, err := g.versions(s, s.Pools[mission].Holdout.Len())
	if err != nil {
		return s, err
	}
	m := measureOf(versions[0])
	if s.Reflection != nil {
		return g.goOn(ctx, s, g.accepted(s, &m))
	}
	s.Start[mission] = m
	return g.measureNext(ctx, s, mission)
}

// measureOf returns the mean over the tickets that have a score.
func measureOf(tickets []scored) (m Measure) {
	sum := 0.0
	for _, t := range tickets {
		if mean, ok := t.mean(); ok {
			sum, m.Tickets = sum+mean, m.Tickets+1
		}
	}
	if m.Tickets > 0 {
		m.Score = sum / float64(m.Tickets)
	}
	return m
}

// measureNext returns the stage that measures the first mission behind the one named, "" of
// all, and the first batch behind the last mission.
func (g Growing) measureNext(ctx context.Context, s Stage, measured string) (Stage, error) {
	behind := measured == ""
	for _, m := range g.Manifest.Config.Missions {
		if h := s.Pools[m.Name].Holdout; behind && h.Len() > 0 {
			next := s.after(Measuring, h.Len()*s.Members)
			next.Mission = m.Name
			return next, nil
		}
		behind = behind || m.Name == measured
	}
	return g.goOn(ctx, s, nil)
}

// write writes the lines of a stage.
func (g Growing) write(ctx context.Context, s Stage, w io.Writer) error {
	m, r := g.Manifest, s.Reflection
	if s.Kind == Ending {
		return nil
	}
	a, err := s.asker(ctx, g.Blobs, m)
	if err != nil {
		return err
	}
	switch s.Kind {
	case Answering:
		at := s.Epoch * s.Tickets
		mark := fmt.Sprintf("e%d", s.Epoch)
		if s.Restarts > 0 {
			mark += fmt.Sprintf("x%d", s.Restarts)
		}
		of := tickets{s, orderKey(m.Run), mark, Span{at + s.From, at + s.To}}
		return a.write(ctx, g.Blobs, m, w, of)
	case Reanswering:
		places, err := r.places()
		if err != nil {
			return err
		}
		a.guidance[r.Mission] = r.Parent.Guidance
		return a.writeTickets(w, s, fmt.Sprintf("r%d.b", r.Number), ticketsIn(ctx, g.Blobs, m, places))
	case Summarising, Critiquing, Consolidating:
		basis, err := g.basis(ctx, s)
		if err != nil {
			return err
		}
		return g.writePrompts(w, s, basis)
	case Gating:
		return g.writeVersions(ctx, w, s, a, r.viable())
	case Confirming:
		return g.writeVersions(ctx, w, s, a, []int{r.Best})
	}
	mission, mark := s.Mission, "start"
	if r != nil {
		mission, mark = r.Mission, fmt.Sprintf("r%d.h", r.Number)
	}
	return a.write(ctx, g.Blobs, m, w, tickets{s, poolKey(m.Run), mark, s.Pools[mission].Holdout})
}

// writeVersions writes the lines of a comparison: the tickets under the guidance, and then
// under each of the candidates.
func (g Growing) writeVersions(ctx context.Context, w io.Writer, s Stage, a *asker, candidates []int) error {
	r := s.Reflection
	letter := string(s.Kind[:1])
	of := tickets{s, poolKey(g.Manifest.Run), fmt.Sprintf("r%d.%s", r.Number, letter), r.Pool}
	if err := a.write(ctx, g.Blobs, g.Manifest, w, of); err != nil {
		return err
	}
	for _, n := range candidates {
		a.guidance[r.Mission] = *r.Candidates[n].Guidance
		of.mark = fmt.Sprintf("r%d.%s%d", r.Number, letter, n)
		if err := a.write(ctx, g.Blobs, g.Manifest, w, of); err != nil {
			return err
		}
	}
	return nil
}

// writePrompts writes the lines of a stage of reflection.
func (g Growing) writePrompts(w io.Writer, s Stage, old guidance.Guidance) error {
	c, r := g.Manifest.Config, s.Reflection
	lim := limitsOf(*c.Reflection)
	for n := range s.Items {
		var messages []guidance.Message
		name := fmt.Sprint(n)
		switch s.Kind {
		case Summarising:
			messages, name = guidance.SummaryPrompt(old, r.Cases[n].Case), r.Cases[n].Key
		case Critiquing:
			messages = guidance.CritiquePrompt(old, lim, r.Reports)
		default:
			messages = guidance.ConsolidatePrompt(old, lim, r.Proposals[n])
		}
		line := jsonl.AppendString([]byte(`{"id":`), fmt.Sprintf("r%d.%s.%s", r.Number, s.Kind, name))
		line = append(append(line, `,"messages":`...), encode(messages)...)
		line = fmt.Appendf(line, ",\"seed\":%d}\n", seedOfStage(c, r.Number, s.Kind, n))
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// window returns a part of a list of at most size positions: another one for each number,
// as far as the list goes.
func window(of Span, size, number int) Span {
	size = min(size, of.Len())
	from := of.From
	if room := of.Len() - size; room > 0 {
		from += number * size % (room + 1)
	}
	return Span{from, from + size}
}
