package trials

import (
	"cmp"
	"math"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/statistics"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// confidence is that of the intervals in summaries.
const confidence = 0.95

// sums are what a run's trials come to, by variant.
type sums struct {
	variants []*variantSums
	byName   map[string]*variantSums
	tasks    map[string]string // the id of each task that was met, so that it is in memory once
	graded   bool
	looks    int // that the run had, if all were decided
}

// variantSums are the sums of a variant.
type variantSums struct {
	record.TrialVariant
	scores []statistics.Score // by task
	// shares says that all scores are from 0 to 1, so that a trial without one has bounds, and
	// binary that all are 0 or 1.
	shares, binary bool
	costs          costs
}

func newSums(c config.Run) *sums {
	s := &sums{byName: map[string]*variantSums{}, tasks: map[string]string{}, graded: len(c.Grades) > 0}
	for _, v := range c.Variants {
		of := &variantSums{TrialVariant: record.TrialVariant{Name: v.Name}, shares: true, binary: true}
		s.variants = append(s.variants, of)
		s.byName[v.Name] = of
	}
	return s
}

// add takes in a trial. causes are why graders gave it no score.
func (s *sums) add(f Fact, causes []grade.Cause) {
	v, known := s.byName[f.Variant]
	if !known {
		return
	}
	task, met := s.tasks[f.Task]
	if !met {
		task = f.Task
		s.tasks[task] = task
	}
	v.Trials++
	if f.PromptTokens != nil {
		v.PromptTokens += *f.PromptTokens
		v.CompletionTokens += *f.CompletionTokens
	}
	switch f.Verdict {
	case Answered:
		v.Answered++
	case Failed:
		count(&v.Failed, string(f.Class))
	case Infrastructure:
		count(&v.Infrastructure, string(f.Class))
	case Pruned:
		v.Pruned++
	}
	switch {
	case f.Score != nil:
		v.costs.add(task, f)
		v.scores = append(v.scores, statistics.Score{Group: task, Value: *f.Score})
		v.shares = v.shares && *f.Score >= 0 && *f.Score <= 1
		v.binary = v.binary && (*f.Score == 0 || *f.Score == 1)
	case len(causes) > 0:
		count(&v.Ungraded, string(causes[0]))
	}
}

// look takes in what a look decided.
func (s *sums) look(l record.Look) {
	s.looks = l.Looks
	for _, v := range l.Variants {
		if of, known := s.byName[v.Name]; known && v.Pruned {
			of.PrunedAt = &record.PrunedAt{Look: l.Look, Looks: l.Looks, From: l.From, Why: v.Why}
		}
	}
}

func count(of *map[string]int, name string) {
	if *of == nil {
		*of = map[string]int{}
	}
	(*of)[name]++
}

// priced fills in the models and the costs of the variants.
func (s *sums) priced(m record.Manifest, d config.Deployment) error {
	for n, v := range s.variants {
		role, err := m.RoleOfModel(m.Config.Variants[n].Model)
		var r record.Role
		if err == nil {
			r, err = m.Role(role)
		}
		if err != nil {
			return err
		}
		v.Model = r.ModelURI
		v.priced(d.ForPool(r.Pool).Engine)
	}
	return nil
}

// result returns the sums for the summary.
func (s *sums) result() record.Trials {
	out := record.Trials{Tasks: len(s.tasks), Looks: s.looks, Variants: []record.TrialVariant{}}
	for _, v := range s.variants {
		if s.graded {
			v.estimate()
		}
		out.Trials += v.Trials
		out.Variants = append(out.Variants, v.TrialVariant)
	}
	return out
}

// estimate fills in what the scores say. Infrastructure, and what no grader could grade, is in no
// mean: Worst and Best say what it could change. Pruned trials were never begun.
func (v *variantSums) estimate() {
	// The order of the rows shall not decide how sums are rounded: an amended run has another one.
	slices.SortFunc(v.scores, func(a, b statistics.Score) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Value, b.Value))
	})
	e := statistics.Mean(v.scores, confidence)
	if v.binary {
		e = statistics.Share(v.scores, confidence)
	}
	v.Scored, v.ScoredTasks, v.Score = e.N, e.Groups, finite(e.Mean)
	v.StandardError, v.Low, v.High = finite(e.Error), finite(e.Interval[0]), finite(e.Interval[1])
	if all := float64(v.Trials - v.Pruned); all > 0 && v.shares {
		sum := 0.0
		for _, s := range v.scores {
			sum += s.Value
		}
		v.Worst, v.Best = finite(sum/all), finite((sum+all-float64(e.N))/all)
	}
}

// finite returns nil for NaN.
func finite(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}
