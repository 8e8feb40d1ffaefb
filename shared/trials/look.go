package trials

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/core/identity"
	"rollout/shared/core/pruning"
	"rollout/shared/core/statistics"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/input"
	"rollout/shared/record"
)

// LookPlaces returns the schedule indexes at which a run of the config with so many trials is
// looked at; nil if it is not.
func LookPlaces(c config.Run, trials int) []int {
	if !c.Prunes() {
		return nil
	}
	return pruning.Places(DesignOf(c, tasksOf(c, trials)), c.LooksOf())
}

// tasksOf returns how many tasks a run of so many trials has.
func tasksOf(c config.Run, trials int) int {
	return trials / max(1, len(c.Variants)*c.DesignOf().Replications)
}

// Look is a look that is due: look Number, from 1 on, of a run of so many Trials.
type Look struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Number   int
	Places   []int // LookPlaces
	Trials   int
	// Ended yields how the trials between the place of the look before and that of this one ended,
	// in their order; pruned ones are left out.
	Ended iter.Seq2[TrialEnd, error]
}

// TrialEnd is how a trial ended: with an output row, or with a class.
type TrialEnd struct {
	Index int         // of the schedule
	Class fault.Class // "" if it is answered
	Row   []byte      // its output row, if it is answered
}

// Decide decides the look from the sums of scores that the look before has left and the trials
// behind its place. It creates the object of the sums, which the next look reads. It holds the sums:
// 16 bytes for each task and variant.
func (l Look) Decide(ctx context.Context) (record.Look, error) {
	c := l.Manifest.Config
	d := DesignOf(c, tasksOf(c, l.Trials))
	scores := pruning.NewScores(d.Tasks, d.Variants)
	last, err := l.before(ctx, scores)
	if err != nil {
		return record.Look{}, err
	}
	if err := l.read(d, last.Trials, scores); err != nil {
		return record.Look{}, err
	}
	look := pruning.Look{Number: l.Number, Of: len(l.Places) - 1, Tested: last.LastTest}
	for n, v := range c.Variants {
		if l.Number == 1 || slices.ContainsFunc(last.Variants, func(of record.LookVariant) bool {
			return of.Name == v.Name && !of.Pruned
		}) {
			look.Variants = append(look.Variants, n)
		}
	}
	sums, err := scores.AppendBinary(nil)
	if err != nil {
		return record.Look{}, err
	}
	_, err = l.Blobs.Put(ctx, record.LookScoresKey(l.Manifest.Run, l.Number), bytes.NewReader(sums),
		blob.PutOptions{CreateOnly: true})
	if err != nil && !fault.Is(err, fault.Conflict) {
		return record.Look{}, err
	}
	out := l.row(look, ruleOf(c).Decide(scores, look))
	out.Scores = identity.Content(sums).String()
	return out, nil
}

// before reads the look before this one, and the sums that it has left.
func (l Look) before(ctx context.Context, scores *pruning.Scores) (last record.Look, err error) {
	if l.Number == 1 {
		return last, nil
	}
	if last, err = ReadLook(ctx, l.Blobs, l.Manifest.Run, l.Number-1); err != nil {
		return last, err
	}
	key := record.LookScoresKey(l.Manifest.Run, l.Number-1)
	r, _, err := l.Blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return last, err
	}
	defer r.Close()
	sums, err := io.ReadAll(r)
	if err != nil {
		return last, fault.Wrap(err, "read %s", key)
	}
	if identity.Content(sums).String() != last.Scores {
		return last, fault.New(fault.Corrupt, "object %s does not have the digest that its look names", key)
	}
	return last, fault.WithKind(fault.Corrupt, scores.UnmarshalBinary(sums), "read %s", key)
}

// ReadLook reads what a look decided.
func ReadLook(ctx context.Context, blobs blob.Store, id identity.RunID, number int) (l record.Look, err error) {
	return l, input.ReadJSON(ctx, blobs, record.LookKey(id, number), &l)
}

// read adds the scores of the trials from index from on.
func (l Look) read(d design.Design, from int, scores *pruning.Scores) error {
	next, stop := iter.Pull(d.Schedule())
	defer stop()
	index := -1
	var at design.Place
	for end, err := range l.Ended {
		if err != nil {
			return err
		}
		if end.Index < from || end.Index >= l.Places[l.Number-1] || end.Index <= index {
			return fault.New(fault.Internal, "a look at the trials from %d on meets trial %d", from, end.Index)
		}
		for ; index < end.Index; index++ {
			at, _ = next()
		}
		score, err := scoreOf(end, l.Manifest.Config.PruningOf().Grader)
		if err != nil {
			return fault.Wrap(err, "trial %d", end.Index)
		}
		if score != nil {
			scores.Add(at.Task, at.Variant, *score)
		}
	}
	return nil
}

// scoreOf returns the score of a trial that decides about its variant; nil if it has none.
func scoreOf(end TrialEnd, grader string) (*float64, error) {
	switch VerdictOf(end.Class) {
	case Failed:
		return new(float64), nil
	case Answered:
		r, err := grade.ReadRow(end.Row)
		if err != nil || grader == "" {
			return r.Score, err
		}
		return r.Scores[grader].Score, nil
	}
	return nil, nil
}

// ruleOf returns the rule of a run that prunes.
func ruleOf(c config.Run) pruning.Rule {
	p := c.PruningOf()
	r := pruning.Rule{Kind: pruning.Kind(p.Rule), Alpha: p.Alpha, Shape: statistics.Shape(p.Spending),
		Test: pruning.Test(p.Test), MinTasks: p.MinTasks, Eta: p.Eta}
	if p.Below != nil {
		r.Below = *p.Below
	}
	return r
}

// row returns the row of the pruning log.
func (l Look) row(look pruning.Look, d pruning.Decision) record.Look {
	c := l.Manifest.Config
	out := record.Look{Schema: record.Schema, Look: look.Number, Looks: look.Of, Rule: c.PruningOf().Rule,
		Trials: l.Places[look.Number-1], From: l.Places[look.Number], Level: d.Level, LastTest: look.Tested,
		Variants: []record.LookVariant{}}
	if d.Tested {
		out.LastTest = look.Number
	}
	var best pruning.Variant
	left := 0
	for _, v := range d.Variants {
		if v.Number == d.Best {
			best, out.Best = v, c.Variants[v.Number].Name
		}
		if !v.Pruned {
			left++
		}
	}
	for _, v := range d.Variants {
		of := record.LookVariant{Name: c.Variants[v.Number].Name, Tasks: v.Tasks, Pruned: v.Pruned}
		if v.Tasks > 0 {
			of.Score = &v.Mean
		}
		if p := v.Pair; p != nil {
			of.Pair = &record.LookPair{Tasks: p.Tasks, Better: p.Better, Worse: p.Worse, Difference: p.Difference,
				Test: string(p.Test), P: p.P, Adjusted: p.Adjusted}
		}
		if v.Pruned {
			of.Why = fmt.Sprintf("look %d of %d: its score %.3g on %d tasks %s", look.Number, look.Of, v.Mean, v.Tasks,
				because(c, d, v, best, left))
		}
		out.Variants = append(out.Variants, of)
	}
	return out
}

// because returns why a variant was pruned.
func because(c config.Run, d pruning.Decision, v, best pruning.Variant, left int) string {
	switch p := v.Pair; {
	case p != nil:
		return fmt.Sprintf("is worse than the %.3g of %s (p %.2g, for all pairs %.2g, at most %.2g)", best.Mean,
			c.Variants[best.Number].Name, p.P, p.Adjusted, d.Level)
	case c.PruningOf().Rule == config.PruneFixed:
		return fmt.Sprintf("is below %g", ruleOf(c).Below)
	}
	return fmt.Sprintf("is not among the best %d of %d", left, len(d.Variants))
}
