package sim

import (
	"context"

	"rollout/shared/core/guidance"
	"rollout/shared/rollout"
)

// checkSteps checks that a step of guidance is made of the step before by a reflection that
// was begun under that step, and that won both comparisons if there are any (I7).
func (c *stages) checkSteps(ctx context.Context) {
	for n, b := range c.all {
		for _, mission := range c.tickets.missions {
			was := 0
			if n > 0 {
				was = c.all[n-1].Guidance[mission]
			}
			step := b.Guidance[mission]
			if step == was {
				continue
			}
			a := c.all[n-1]
			r := a.Reflection
			if step != was+1 || r == nil || r.Mission != mission || r.Step != was {
				c.audit.breakf("I7: stage %d has step %d of %s after step %d, by the reflection %+v", b.Input, step, mission, was,
					r)
				continue
			}
			c.checkAccepted(ctx, a, b)
		}
	}
	begun := 0
	for _, s := range c.all {
		if s.Kind == rollout.Reanswering || s.Kind == rollout.Summarising && s.Reflection.Parent == nil {
			begun++
		}
		steps := 0
		for _, step := range s.Guidance {
			steps += step
		}
		if s.Accepted != steps || s.Reflections != begun {
			c.audit.breakf("stage %d counts %d of %d reflections as accepted, and %d of %d were", s.Input, s.Accepted,
				s.Reflections, steps, begun)
		}
	}
}

// checkAccepted checks the step that is new in stage b.
func (c *stages) checkAccepted(ctx context.Context, a, b rollout.Stage) {
	mission, step := a.Reflection.Mission, b.Guidance[a.Reflection.Mission]
	candidates, best := []rollout.Candidate(nil), 0
	if b.Reflection != nil && b.Over == nil {
		candidates, best = b.Reflection.Candidates, b.Reflection.Best
	} else if b.Over != nil {
		candidates, best = b.Over.Candidates, b.Over.Best
	}
	if best >= len(candidates) || candidates[best].Guidance == nil {
		c.audit.breakf("I7: step %d of %s is of no candidate", step, mission)
		return
	}
	won := candidates[best]
	if gated := !c.cfg.Gate.Off && c.known(mission) > 0; gated && (a.Kind != rollout.Confirming || won.Gate == nil ||
		!won.Gate.Accepted || won.Confirm == nil || !won.Confirm.Accepted) || !gated && a.Kind != rollout.Consolidating {
		c.audit.breakf("step %d of %s is taken after %s, with %+v and %+v", step, mission, a.Kind, won.Gate, won.Confirm)
	}
	before, now := c.step(ctx, mission, step-1), c.step(ctx, mission, step)
	if now.From != before.ContentID().String() || now.Scaffold != before.Scaffold ||
		string(now.Encode()) != string(won.Guidance.Encode()) {
		c.audit.breakf("I7: step %d of %s is made from %s, want %s, and is\n%s", step, mission, now.From, before.ContentID(),
			now.Encode())
	}
}

// step returns a step of a mission's guidance.
func (c *stages) step(ctx context.Context, mission string, step int) guidance.Guidance {
	g, err := rollout.ReadStep(ctx, c.bucket, c.id, mission, step)
	if err != nil {
		c.t.Fatalf("seed %d: step %d of %s: %v", c.seed, step, mission, err)
	}
	return g
}

// shown is what the check reads of a line that asks about a ticket.
type shown struct {
	Messages []struct{ Role, Content string }
	Number   int `json:"ticket_number"`
	Step     int
	Seed     int64
	Ticket   struct{ Mission string }
}

// checkLines checks that each line shows the guidance that its stage names, that all
// versions of a comparison are asked about the same tickets with the same seeds, and that a
// ticket is answered, compared, confirmed or measured, and never two of these.
func (c *stages) checkLines(ctx context.Context) {
	uses := map[int]rollout.StageKind{} // by ticket
	for _, s := range c.all {
		lines := c.linesOf(s)
		if s.Kind.Role() == rollout.RoleReflect || s.Kind == rollout.Ending {
			continue
		}
		steps, versions := s.Guidance, c.versions(ctx, s)
		for k, l := range lines {
			var q shown
			c.decode(l.bytes, &q)
			text, at := "", steps[q.Ticket.Mission]
			if s.Kind == rollout.Answering {
				text = c.step(ctx, q.Ticket.Mission, at).Text()
			} else {
				of := k * len(versions) / len(lines)
				text, at = versions[of].Text(), versions[of].Step
				if s.Kind == rollout.Reanswering {
					at = steps[q.Ticket.Mission]
				}
				var first shown
				c.decode(lines[k%(len(lines)/len(versions))].bytes, &first)
				if first.Number != q.Number || first.Seed != q.Seed {
					c.audit.breakf("stage %d compares ticket %d with seed %d and ticket %d with seed %d", s.Input, first.Number,
						first.Seed, q.Number, q.Seed)
				}
			}
			if len(q.Messages) != 2 || q.Messages[0].Content != text+guidanceEnd || q.Step != at {
				c.audit.breakf("I6: stage %d, %s, shows to %s (step %d) %q, want step %d: %q", s.Input, s.Kind, l.id, q.Step,
					q.Messages[0].Content, at, text)
			}
			use := s.Kind
			if use == rollout.Reanswering { // a ticket that was answered
				use = rollout.Answering
			}
			if was, used := uses[q.Number]; used && was != use {
				c.audit.breakf("ticket %d is in stage %d for %s, and was for %s", q.Number, s.Input, s.Kind, was)
			}
			uses[q.Number] = use
		}
	}
}

// linesOf returns the lines of a stage.
func (c *stages) linesOf(s rollout.Stage) []line {
	if s.Input >= len(c.files) {
		return nil
	}
	return c.files[s.Input].lines
}

// versions returns the guidances that a comparison asks under, in their order.
func (c *stages) versions(ctx context.Context, s rollout.Stage) (out []guidance.Guidance) {
	r := s.Reflection
	if s.Kind == rollout.Answering {
		return nil
	}
	if r == nil { // the measure at the start
		return []guidance.Guidance{c.step(ctx, s.Mission, 0)}
	}
	if s.Kind == rollout.Reanswering {
		return []guidance.Guidance{r.Parent.Guidance}
	}
	out = append(out, c.step(ctx, r.Mission, s.Guidance[r.Mission]))
	for n, candidate := range r.Candidates {
		if candidate.Guidance != nil && (s.Kind == rollout.Gating || s.Kind == rollout.Confirming && n == r.Best) {
			out = append(out, *candidate.Guidance)
		}
	}
	return out
}
