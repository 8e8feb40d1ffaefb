package sim

import (
	"context"
	"fmt"
	"slices"

	"rollout/shared/core/guidance"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// frontObject is what the check reads of a front.
type frontObject struct {
	Members []frontMember
}

type frontMember struct {
	Name     string
	Best     int
	Scores   []*float64
	Guidance guidance.Guidance
}

// front returns the front of a mission at a stage.
func (c *stages) front(ctx context.Context, s rollout.Stage, mission string) (f frontObject) {
	if ref, ok := s.Fronts[mission]; ok {
		c.decode(c.object(ctx, c.rolloutKey(fmt.Sprintf("front/%s/%06d.json", mission, ref.Input))), &f)
	}
	return f
}

// checkFront checks the fronts of stage b against those of the stage before it: they change
// behind a comparison alone, of what was there and what was compared; each member is the
// only best one on a ticket; and a reflection begins with a member or the present guidance.
// It reports whether a candidate has joined one.
func (c *stages) checkFront(ctx context.Context, a, b rollout.Stage) (joined bool) {
	if p := begins(b); p != nil {
		f := c.front(ctx, b, b.Reflection.Mission)
		at := slices.IndexFunc(f.Members, func(m frontMember) bool { return m.Name == p.Name })
		if at < 0 || f.Members[at].Guidance.Text() != p.Guidance.Text() {
			c.audit.breakf("stage %d begins with %s, and the front is %+v", b.Input, p.Name, f)
		}
	}
	for mission, ref := range b.Fronts {
		was := a.Fronts[mission]
		if ref == was {
			continue
		}
		r := a.Reflection
		if ref.Input != b.Input || r == nil || r.Mission != mission ||
			a.Kind != rollout.Gating && (a.Kind != rollout.Confirming || b.Guidance[mission] != r.Step+1) {
			c.audit.breakf("stage %d has the front %+v of %s after %+v, behind %s", b.Input, ref, mission, was, a.Kind)
			continue
		}
		before, now := c.front(ctx, a, mission), c.front(ctx, b, mission)
		known := []string{fmt.Sprint("step ", r.Step)}
		for _, m := range before.Members {
			known = append(known, m.Name)
		}
		for n := range r.Candidates {
			known = append(known, fmt.Sprintf("r%d.%d", r.Number, n))
		}
		if a.Kind == rollout.Confirming {
			known = append(known, fmt.Sprint("step ", r.Step+1))
		}
		if len(now.Members) > c.cfg.Reflection.Pareto || len(now.Members) != ref.Members {
			c.audit.breakf("stage %d has a front of %d members, and names %d", b.Input, len(now.Members), ref.Members)
		}
		for n, m := range now.Members {
			if at := slices.Index(known, m.Name); at < 0 {
				c.audit.breakf("stage %d has %s on the front, which is none of %v", b.Input, m.Name, known)
			} else if a.Kind == rollout.Gating && at > len(before.Members) {
				joined = true
			}
			c.checkBest(b, now, n)
		}
	}
	return joined
}

// begins returns what a reflection begins with in its first stage.
func begins(s rollout.Stage) *rollout.Parent {
	if s.Kind != rollout.Reanswering {
		return nil
	}
	return s.Reflection.Parent
}

// checkBest checks on how many tickets a member is best, and that it is the only one on one
// of these.
func (c *stages) checkBest(s rollout.Stage, f frontObject, member int) {
	best, alone := 0, 0
	m := f.Members[member]
	for t, score := range m.Scores {
		better, equal := 0, 0
		for _, o := range f.Members {
			switch {
			case score == nil || o.Scores[t] == nil:
			case *o.Scores[t] > *score:
				better++
			case *o.Scores[t] == *score:
				equal++
			}
		}
		if better == 0 && equal > 0 {
			best++
			alone += min(1, max(0, 2-equal))
		}
	}
	if best != m.Best || alone == 0 {
		c.audit.breakf("stage %d: %s is best on %d tickets, alone on %d; the front says %d", s.Input, m.Name, best, alone,
			m.Best)
	}
}

// published returns the stages that count in the run's files. The last one of a run that was
// ended early may have been saved without having been planned.
func (c *stages) published(ctx context.Context) []rollout.Stage {
	all := slices.Clone(c.all)
	for n := c.inputs + len(all); n <= c.tickets.reference.last; n++ {
		s, err := rollout.ReadStage(ctx, c.bucket, c.id, n)
		if err != nil {
			c.t.Fatalf("seed %d: the stage %d, which counts: %v", c.seed, n, err)
		}
		all = append(all, s)
	}
	return all
}

// checkFrontRows checks that each row of the fronts names what the last front of its
// mission had when the reflection was over.
func (c *stages) checkFrontRows(ctx context.Context) {
	if c.cfg.Reflection.Pareto == 0 {
		return
	}
	rows := split(c.object(ctx, record.OutputKey(c.id, rollout.FrontsFile)))
	last := map[string]rollout.FrontRef{}
	for _, s := range c.published(ctx) {
		if s.Over == nil || s.Fronts[s.Over.Mission] == last[s.Over.Mission] || s.Input > c.tickets.reference.last {
			continue
		}
		last[s.Over.Mission] = s.Fronts[s.Over.Mission]
		if len(rows) == 0 {
			c.audit.breakf("reflection %d has no row in %s", s.Over.Number, rollout.FrontsFile)
			return
		}
		var row rollout.FrontRow
		c.decode(rows[0], &row)
		rows = rows[1:]
		f := c.front(ctx, s, s.Over.Mission)
		same := len(row.Members) == len(f.Members) && row.Reflection == s.Over.Number && row.Mission == s.Over.Mission
		for n := range min(len(row.Members), len(f.Members)) {
			same = same && row.Members[n].Name == f.Members[n].Name && row.Members[n].Best == f.Members[n].Best
		}
		if !same {
			c.audit.breakf("reflection %d has the row %+v, and the front is %+v", s.Over.Number, row, f)
		}
	}
	if len(rows) > 0 {
		c.audit.breakf("%s has %d rows too many", rollout.FrontsFile, len(rows))
	}
}
