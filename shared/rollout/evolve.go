package rollout

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Growing is a rollout whose planned items all have results.
type Growing struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Source   record.Ranges // the tickets
	// Outcomes are those of the items that were planned last; of none before the first
	// stage.
	Outcomes iter.Seq2[Outcome, error]
}

// Append writes the stage of that number, and its lines to w: none if the run is complete.
// What it writes is a function of the manifest and of the outcomes so far.
func (g Growing) Append(ctx context.Context, number int, w io.Writer) error {
	var next Stage
	if number == len(g.Manifest.Inputs) {
		book, err := Import(ctx, g.Blobs, g.Manifest, g.Source)
		if err != nil {
			return err
		}
		next, err = g.measureNext(ctx, start(g.Manifest, book), "")
		if err != nil {
			return err
		}
	} else {
		last, err := ReadStage(ctx, g.Blobs, g.Manifest.Run, number-1)
		if err != nil {
			return err
		}
		if next, err = g.next(ctx, last); err != nil {
			return fault.Wrap(err, "after the stage %d, %s", last.Input, last.Kind)
		}
	}
	next, err := next.save(ctx, g.Blobs, g.Manifest.Run)
	if err != nil {
		return err
	}
	return g.write(ctx, next, w)
}

// next returns the stage behind s, whose outcomes are there.
func (g Growing) next(ctx context.Context, s Stage) (Stage, error) {
	s.Guidance, s.Pending, s.Steps = copied(s.Guidance), copied(s.Pending), copied(s.Steps)
	s.Used, s.Start, s.Fronts = copied(s.Used), copied(s.Start), copied(s.Fronts)
	if r := s.Reflection; r != nil {
		own := *r
		own.Candidates, own.Unusable = slices.Clone(r.Candidates), maps.Clone(r.Unusable)
		s.Reflection = &own
	}
	switch s.Kind {
	case Answering:
		return g.answered(ctx, s)
	case Reanswering:
		return g.reanswered(ctx, s)
	case Summarising:
		return g.summarised(ctx, s)
	case Critiquing:
		return g.critiqued(ctx, s)
	case Consolidating:
		return g.consolidated(ctx, s)
	case Gating:
		return g.gated(ctx, s)
	case Confirming:
		return g.confirmed(ctx, s)
	case Measuring:
		return g.measured(ctx, s)
	}
	return s, fault.New(fault.Corrupt, "the stage %q has nothing behind it", s.Kind)
}

// copied returns an independent map, also of none.
func copied[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	maps.Copy(out, m)
	return out
}

// goOn returns the next stage of a run without a reflection under way: the next reflection
// or, when none is due, the next batch. over is the reflection that has just ended.
func (g Growing) goOn(ctx context.Context, s Stage, over *Record) (next Stage, err error) {
	c := g.Manifest.Config
	s.Reflection = nil
	defer func() { next.Over = over }()
	end := func(why string) Stage {
		next := s.after(Ending, 0)
		next.Stopped = why
		return next
	}
	if r := c.Reflection; r != nil && s.Failed >= r.StopAfter {
		return end(fmt.Sprintf("%d reflections in a row failed, the last one because: %s", s.Failed, over.Why)), nil
	}
	for _, m := range c.Missions {
		count := s.Pending[m.Name].Count
		if due := c.Reflection != nil && count > 0 && (count >= c.Reflection.BatchSize || s.To >= s.Tickets); due {
			return g.reflect(ctx, s, m.Name)
		}
	}
	next, more := s.nextBatch(c)
	if !more {
		return end(next.Stopped), nil
	}
	return next, nil
}

// answered takes in a batch of answers.
func (g Growing) answered(ctx context.Context, s Stage) (Stage, error) {
	m := g.Manifest
	if again, err := g.interrupted(s); again || err != nil {
		return s.restart(), err
	}
	s.Totals = s.Totals.Clone()
	out := &lessons{ctx: ctx, blobs: g.Blobs, run: m.Run, input: s.Input, files: map[string]*object{},
		count: map[string]int{}}
	at := s.Epoch * s.Tickets
	nextTicket, stop := iter.Pull2(ticketsOf(ctx, g.Blobs, m, orderKey(m.Run), Span{at + s.From, at + s.To}))
	defer stop()
	err := g.groups(s, func(group Group) error {
		s.Totals.Add(group)
		mission := group.ticket.Mission
		s.addScores(group)
		if group.selection.Teaches != selection.NoLesson {
			s.Taught++
		}
		if m.Config.Reflection == nil {
			return nil
		}
		s.Used[mission] = maps.Clone(s.Used[mission])
		if s.Used[mission] == nil {
			s.Used[mission] = entryUsage{}
		}
		s.Used[mission].count(group)
		t, err, more := nextTicket() // read ahead, in the order of the answers
		if err == nil && !more {
			err = fault.New(fault.Corrupt, "the order of the tickets ends within batch %d", s.Batch)
		}
		if err != nil || group.selection.Teaches == selection.NoLesson {
			return err
		}
		return out.add(mission, caseOf(group, t))
	})
	if err := out.finish(err); err != nil {
		return s, err
	}
	for mission, count := range out.count {
		p := s.Pending[mission]
		p.Count += count
		p.Parts = append(slices.Clone(p.Parts), casesPart{Input: s.Input, Count: count})
		s.Pending[mission] = p
	}
	if next, more := s.replacements(m.Config); more {
		return next, nil
	}
	return g.goOn(ctx, s, nil)
}

// interrupted reports whether the tickets of a stage of answers are to be asked anew.
func (g Growing) interrupted(s Stage) (bool, error) {
	if g.Manifest.Config.RunnerOf().OnInterrupt != config.InterruptRestart || s.Restarts >= maxRestarts {
		return false, nil
	}
	for o, err := range g.Outcomes {
		if err != nil || o.Again {
			return true, err
		}
	}
	return false, nil
}

// addScores adds the scores of a ticket to those of its step.
func (s *Stage) addScores(g Group) {
	mission, step := g.ticket.Mission, g.members[0].Step
	sums := slices.Clone(s.Steps[mission])
	for len(sums) <= step {
		sums = append(sums, StepSum{})
	}
	for _, m := range g.members {
		if m.score != nil {
			sums[step].Scored++
			sums[step].Score += *m.score
		}
	}
	s.Steps[mission] = sums
}

// groups calls do for each ticket of the stage's outcomes.
func (g Growing) groups(s Stage, do func(Group) error) error {
	reader, err := NewReader(g.Manifest.Config)
	if err != nil {
		return err
	}
	reader.brief = true
	var members []Outcome
	for o, err := range g.Outcomes {
		if err != nil {
			return err
		}
		if members = append(members, o); len(members) < s.Members {
			continue
		}
		group, err := reader.Read(members)
		if err == nil {
			err = do(group)
		}
		if err != nil {
			return err
		}
		members = members[:0]
	}
	if len(members) > 0 {
		return fault.New(fault.Corrupt, "the last ticket has %d of %d answers", len(members), s.Members)
	}
	return nil
}
