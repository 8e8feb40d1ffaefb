package pruning_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"rollout/shared/core/design"
	"rollout/shared/core/pruning"
	"rollout/shared/core/statistics"
)

// game is a simulated run: the score of each trial is drawn, and looks prune variants.
type game struct {
	design design.Design
	rule   pruning.Rule
	looks  int
	// score draws the score of a trial of a task that is so easy, and has so much in common with
	// the variant.
	score func(r *rand.Rand, p design.Place, easy, common float64) float64
}

// outcome is what became of a game.
type outcome struct {
	pruned   map[int]int // from which schedule index on, by variant
	trials   int         // that were done
	level    float64     // that was spent
	careless bool        // a test at each look whose P is not adjusted would have pruned
}

func (g game) play(seed uint64) outcome {
	r := rand.New(rand.NewPCG(seed, 20))
	d := g.design
	easy, common := make([]float64, d.Tasks), make([]float64, d.Tasks*d.Variants)
	for i := range easy {
		easy[i] = r.Float64()
	}
	for i := range common {
		common[i] = r.NormFloat64() * 0.3
	}
	places, out := pruning.Places(d, g.looks), outcome{pruned: map[int]int{}}
	s := pruning.NewScores(d.Tasks, d.Variants)
	index, look, tested := 0, 0, 0
	for p := range d.Schedule() {
		if look+1 < len(places) && index == places[look] {
			l := pruning.Look{Number: look + 1, Of: len(places) - 1, Tested: tested}
			for v := range d.Variants {
				if _, pruned := out.pruned[v]; !pruned {
					l.Variants = append(l.Variants, v)
				}
			}
			decision := g.rule.Decide(s, l)
			if decision.Tested {
				tested = look + 1
				out.level += decision.Level
			}
			for _, v := range decision.Variants {
				out.careless = out.careless || v.Pair != nil && v.Pair.P <= g.rule.Alpha
				if v.Pruned {
					out.pruned[v.Number] = places[look+1]
				}
			}
			look++
		}
		score := g.score(r, p, easy[p.Task], common[p.Task*d.Variants+p.Variant])
		if from, pruned := out.pruned[p.Variant]; !pruned || index < from {
			out.trials++
			s.Add(p.Task, p.Variant, score)
		}
		index++
	}
	return out
}

// right draws 0 or 1.
func right(r *rand.Rand, chance float64) float64 {
	if r.Float64() < chance {
		return 1
	}
	return 0
}

// TestEqualVariantsAreHardlyEverPruned plays 1,000 races of equal variants for each shape and test.
// The probability that any of them is pruned is at most alpha, 0.05: the bound is the expected
// number, 50, without an allowance for chance, because a rule that holds for every sample, and
// for any dependence of the looks, errs on the safe side. Repetitions of a task have their variant
// and their task in common, so that they are not independent.
func TestEqualVariantsAreHardlyEverPruned(t *testing.T) {
	t.Parallel()
	const seeds = 1000
	for _, shape := range []statistics.Shape{statistics.ShapePocock, statistics.ShapeObrienFleming} {
		for _, c := range []struct {
			name         string
			test         pruning.Test
			replications int
			score        func(r *rand.Rand, p design.Place, easy, common float64) float64
		}{
			{"one answer a task", pruning.McNemar, 1, func(r *rand.Rand, _ design.Place, easy, common float64) float64 {
				return right(r, easy+common)
			}},
			{"answers that are right or wrong", pruning.Auto, 3,
				func(r *rand.Rand, _ design.Place, easy, common float64) float64 { return right(r, easy+common) }},
			{"scores", pruning.Wilcoxon, 3, func(r *rand.Rand, _ design.Place, easy, common float64) float64 {
				return easy + common + 0.1*r.NormFloat64()
			}},
			{"scores by the number of tasks", pruning.McNemar, 3,
				func(r *rand.Rand, _ design.Place, easy, common float64) float64 {
					return easy + common + 0.1*r.NormFloat64()
				}},
		} {
			t.Run(fmt.Sprintf("%s/%s", shape, c.name), func(t *testing.T) {
				t.Parallel()
				g := game{looks: 10, score: c.score,
					design: design.Design{Tasks: 40, Variants: 3, Replications: c.replications, Order: design.Interleaved},
					rule:   pruning.Rule{Kind: pruning.Race, Alpha: 0.05, Shape: shape, Test: c.test, MinTasks: 10}}
				wrong, careless := 0, 0
				for seed := range uint64(seeds) {
					o := g.play(seed)
					if len(o.pruned) > 0 {
						wrong++
					}
					if o.careless {
						careless++
					}
					if o.level > g.rule.Alpha+1e-12 {
						t.Fatalf("the looks spend %v", o.level)
					}
				}
				if wrong > seeds*5/100 {
					t.Errorf("a variant is pruned falsely in %d of %d runs, at most 5 %% are allowed", wrong, seeds)
				}
				if careless < 2*seeds*5/100 { // otherwise the rule has nothing to guard against
					t.Errorf("without spending and adjusting there are %d false prunes", careless)
				}
				t.Logf("%d false prunes, %d if each look were the only one", wrong, careless)
			})
		}
	}
}

// TestWorseVariantsArePrunedEarly plays races of one good variant and of three that are clearly worse.
func TestWorseVariantsArePrunedEarly(t *testing.T) {
	t.Parallel()
	for _, order := range []design.Order{design.Interleaved, design.ByTask, design.Random} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			chances := []float64{0.2, 0.9, 0.3, 0.25}
			g := game{looks: 10, design: design.Design{Tasks: 60, Variants: 4, Replications: 5, Order: order, Seed: 3},
				rule: pruning.Rule{Kind: pruning.Race, Alpha: 0.05, Shape: statistics.ShapePocock, Test: pruning.Auto,
					MinTasks: 10},
				score: func(r *rand.Rand, p design.Place, _, _ float64) float64 { return right(r, chances[p.Variant]) }}
			const seeds = 50
			done, pruned := 0, 0
			for seed := range uint64(seeds) {
				o := g.play(seed)
				if _, best := o.pruned[1]; best {
					t.Fatalf("seed %d: the best variant is pruned: %v", seed, o.pruned)
				}
				done, pruned = done+o.trials, pruned+len(o.pruned)
			}
			saved := 1 - float64(done)/float64(seeds*g.design.Trials())
			if saved < 0.4 || pruned < 2*seeds {
				t.Errorf("%.0f %% of the trials are saved, at least 40 %% are wanted; %d of %d variants are pruned", 100*saved,
					pruned, 3*seeds)
			}
			t.Logf("%.0f %% of the trials are saved", 100*saved)
		})
	}
}
