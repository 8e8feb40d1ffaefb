package pruning

import (
	"cmp"
	"math"
	"slices"

	"rollout/shared/core/statistics"
)

// Kind says by what variants are pruned. Example: "race".
type Kind string

// The kinds of rules.
const (
	// Fixed prunes a variant whose mean is below a bound.
	Fixed Kind = "fixed"
	// Race prunes a variant that is worse than the best one by more than chance.
	Race Kind = "race"
	// Halving keeps a part of the variants at each look: the best ones.
	Halving Kind = "halving"
)

// Test says how two variants are compared in a Race. Example: "mcnemar".
type Test string

// The tests.
const (
	// Auto is McNemar if each score of a task is 0 or 1 under both variants, otherwise Wilcoxon.
	Auto Test = "auto"
	// Wilcoxon is the signed-rank test of the differences.
	Wilcoxon Test = "wilcoxon"
	// McNemar counts on how many tasks each of the two is better: of scores that are 0 or 1 it is
	// McNemar's exact test, and of others the sign test.
	McNemar Test = "mcnemar"
)

// Rule is how a run prunes. The fields of other kinds than its own do not matter.
type Rule struct {
	Kind Kind
	// Of a Race: the probability that a variant which is as good as the best one is ever pruned is
	// at most Alpha. Shape says how it is spent over the looks.
	Alpha float64
	Shape statistics.Shape
	Test  Test
	// MinTasks is how many tasks must have scores for a comparison: under both variants in a Race,
	// under all of them in a Halving, and under the one that is judged in a Fixed rule.
	MinTasks int
	Below    float64 // of Fixed
	Eta      int     // of Halving: of n variants, n/Eta stay, rounded up
}

// Look is a look at a run.
type Look struct {
	Number, Of int   // from 1 to Of
	Variants   []int // that are not pruned by earlier looks, ascending
	Tested     int   // the last look before it that held a test; 0 if none did
}

// Decision is what a look decided.
type Decision struct {
	Variants []Variant // those of the look, in their order
	Best     int       // of a Race and a Halving: the variant with the best score; −1 if none can be named
	// Level is the greatest adjusted P that prunes a variant in a Race. Tested says that some
	// variant was compared with the best one.
	Level  float64
	Tested bool
}

// Variant is what a look found of a variant.
type Variant struct {
	Number int
	Tasks  int     // with a score; of a Halving, with one under all variants of the look
	Mean   float64 // of their scores; 0 without one
	Pair   *Pair   // its comparison with the best one, if there was one
	Pruned bool
}

// Pair compares the best variant of a look with another one.
type Pair struct {
	Tasks         int // with a score under both
	Better, Worse int // on how many of them the best one is better, and worse
	Difference    float64
	Test          Test
	// P is that of the test, of both sides. Adjusted takes into account how many pairs there are.
	P, Adjusted float64
}

// Decide decides what the look prunes, from the scores of the trials before its place.
func (r Rule) Decide(s *Scores, l Look) Decision {
	d := Decision{Best: -1}
	for _, n := range l.Variants {
		mean, tasks := s.Mean(n)
		d.Variants = append(d.Variants, Variant{Number: n, Tasks: tasks, Mean: mean})
	}
	switch r.Kind {
	case Fixed:
		for i, v := range d.Variants {
			d.Variants[i].Pruned = v.Tasks >= r.MinTasks && v.Mean < r.Below
		}
	case Race:
		r.race(&d, s, l)
	case Halving:
		r.halve(&d, s)
	}
	return d
}

// race compares the best variant with all others. Which one is the best is known only after a look
// at the scores, so that P is adjusted for all pairs, as if those without the best one had been
// compared too and shown nothing: the probability that any of them is decided falsely at this
// look is at most Level (Holm 1979).
func (r Rule) race(d *Decision, s *Scores, l Look) {
	best := -1
	for i, v := range d.Variants {
		if v.Tasks >= r.MinTasks && (best < 0 || v.Mean > d.Variants[best].Mean) {
			best = i
		}
	}
	if best < 0 || len(d.Variants) < 2 {
		return
	}
	d.Best = d.Variants[best].Number
	spending := statistics.Spending{Alpha: r.Alpha, Shape: r.Shape}
	share := func(look int) float64 { return float64(look) / float64(l.Of) }
	d.Level = spending.At(share(l.Tested), share(l.Number))
	var p []float64
	for i := range d.Variants {
		v := &d.Variants[i]
		if v.Pair = r.compare(s, d.Best, v.Number); i == best || v.Pair.Tasks < r.MinTasks {
			v.Pair = nil
			continue
		}
		d.Tested = true
		p = append(p, v.Pair.P)
	}
	for pairs := len(d.Variants) * (len(d.Variants) - 1) / 2; len(p) < pairs; {
		p = append(p, 1)
	}
	adjusted := statistics.Holm(p)
	for i := range d.Variants {
		if v := &d.Variants[i]; v.Pair != nil {
			v.Pair.Adjusted, adjusted = adjusted[0], adjusted[1:]
			v.Pruned = v.Pair.Adjusted <= d.Level && v.Pair.Difference > 0
		}
	}
}

// grid is in how many steps scores that differ by 1 are told apart.
const grid = 1e9

// compare compares two variants on the tasks that have a score under both. P is small only if the
// first one is better.
func (r Rule) compare(s *Scores, first, second int) *Pair {
	var p Pair
	var differences []float64
	binary := true
	for t := range s.tasks {
		x, ok := s.Of(t, first)
		y, also := s.Of(t, second)
		if !ok || !also {
			continue
		}
		// Means of the same scores in another order differ in their last bits.
		d := math.Round((x-y)*grid) / grid
		switch {
		case d > 0:
			p.Better++
		case d < 0:
			p.Worse++
		}
		binary = binary && (x == 0 || x == 1) && (y == 0 || y == 1)
		p.Difference += d
		differences = append(differences, d)
	}
	p.Tasks = len(differences)
	p.Difference /= float64(max(1, p.Tasks))
	if p.Test = r.Test; r.Test == Auto {
		p.Test = Wilcoxon
		if binary {
			p.Test = McNemar
		}
	}
	if p.Test == McNemar {
		p.P = min(1, 2*statistics.UpperTail(p.Better+p.Worse, p.Better))
	} else {
		p.P = min(1, 2*statistics.Wilcoxon(differences).Greater)
	}
	return &p
}

// halve prunes all variants but the best ones, on the tasks that have a score under all of them.
// Of equal ones those stay that come first.
func (r Rule) halve(d *Decision, s *Scores) {
	for i := range d.Variants {
		d.Variants[i].Mean, d.Variants[i].Tasks = 0, 0
	}
	scores := make([]float64, len(d.Variants))
	for t := range s.tasks {
		all := true
		for i := 0; i < len(scores) && all; i++ {
			scores[i], all = s.Of(t, d.Variants[i].Number)
		}
		if !all {
			continue
		}
		for i := range d.Variants {
			d.Variants[i].Mean += scores[i]
			d.Variants[i].Tasks++
		}
	}
	order := make([]int, len(d.Variants))
	for i := range d.Variants {
		d.Variants[i].Mean /= float64(max(1, d.Variants[i].Tasks))
		order[i] = i
	}
	if len(order) < 2 || d.Variants[0].Tasks < r.MinTasks {
		return
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(d.Variants[b].Mean, d.Variants[a].Mean) })
	d.Best = d.Variants[order[0]].Number
	for _, i := range order[(len(order)+r.Eta-1)/r.Eta:] {
		d.Variants[i].Pruned = true
	}
}
