package leaderboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"rollout/shared/core/statistics"
	"rollout/shared/record"
	"rollout/shared/trials"
)

const (
	confidence = 0.95
	right      = 1.0 // the score from which on a trial is right
	// seed makes the bootstrap the same in each report.
	seed = 1
	// A pair has maxResamples if all pairs together then draw at most maxDraws tasks, but not
	// fewer than minResamples.
	maxResamples = 10_000
	minResamples = 200
	maxDraws     = 500_000_000
)

// grid has the scores of a run's trials, by variant and task.
type grid struct {
	names []string // of the variants
	tasks []string // their ids, in the order of their first slots
	at    map[string]int
	slots []uint64        // the first one of each task
	cells []map[int]*cell // by variant: of its tasks
}

// cell has the trials of one task under one variant that have a score.
type cell struct {
	scores []float64
	trials []trial
	score  float64 // of the task: what the reducer makes of scores
}

// trial is what flips need of a trial.
type trial struct {
	id          string
	replication int
	class       string
}

func newGrid(vs []record.TrialVariant) *grid {
	g := &grid{at: map[string]int{}}
	for _, v := range vs {
		g.names = append(g.names, v.Name)
		g.cells = append(g.cells, map[int]*cell{})
	}
	return g
}

// number returns the number of a variant.
func (g *grid) number(name string) int { return slices.Index(g.names, name) }

// add takes in a trial.
func (g *grid) add(f trials.Fact) {
	v := g.number(f.Variant)
	if v < 0 || f.Score == nil {
		return
	}
	t, known := g.at[f.Task]
	if !known {
		t = len(g.tasks)
		g.at[f.Task] = t
		g.tasks, g.slots = append(g.tasks, f.Task), append(g.slots, f.Slot)
	}
	g.slots[t] = min(g.slots[t], f.Slot)
	c := g.cells[v][t]
	if c == nil {
		c = &cell{}
		g.cells[v][t] = c
	}
	c.scores = append(c.scores, *f.Score)
	c.trials = append(c.trials, trial{f.ID, f.Replication, string(f.Class)})
}

// sort puts tasks and trials into the order of their slots: the order in which trials were begun,
// which another design or an amendment changes, decides nothing.
func (g *grid) sort() {
	order := make([]int, len(g.tasks))
	for t := range order {
		order[t] = t
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.slots[a], g.slots[b]) })
	tasks, cells := make([]string, len(order)), make([]map[int]*cell, len(g.cells))
	for v := range cells {
		cells[v] = make(map[int]*cell, len(g.cells[v]))
	}
	for to, from := range order {
		tasks[to] = g.tasks[from]
		g.at[tasks[to]] = to
		for v := range cells {
			if c := g.cells[v][from]; c != nil {
				c.sort()
				cells[v][to] = c
			}
		}
	}
	slices.Sort(g.slots)
	g.tasks, g.cells = tasks, cells
}

// sort sorts the trials of the cell by their replication.
func (c *cell) sort() {
	order := make([]int, len(c.trials))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return c.trials[a].replication - c.trials[b].replication })
	sorted := cell{scores: make([]float64, 0, len(order)), trials: make([]trial, 0, len(order))}
	for _, n := range order {
		sorted.scores, sorted.trials = append(sorted.scores, c.scores[n]), append(sorted.trials, c.trials[n])
	}
	*c = sorted
}

// reduce sets the score of each task, which is the mean of its trials unless the reducer says
// otherwise. A reducer that needs more trials than a task has leaves the task out.
func (g *grid) reduce(r statistics.Reducer) {
	for _, cells := range g.cells {
		for _, c := range cells {
			c.score = r.Reduce(c.scores, right)
		}
	}
}

// reduced returns the means of the tasks' scores, with their intervals.
func (g *grid) reduced() (out []Reduced) {
	for v, name := range g.names {
		var scores []statistics.Score
		binary := true
		for t := range g.tasks {
			if c := g.cells[v][t]; c != nil && !math.IsNaN(c.score) {
				scores = append(scores, statistics.Score{Value: c.score})
				binary = binary && (c.score == 0 || c.score == 1)
			}
		}
		e := statistics.Mean(scores, confidence)
		if binary {
			e = statistics.Share(scores, confidence)
		}
		out = append(out, Reduced{Variant: name, Tasks: len(scores), Score: finite(e.Mean), Low: finite(e.Interval[0]),
			High: finite(e.Interval[1])})
	}
	return out
}

// both calls each for the tasks that two variants have a score of, in their order.
func (g *grid) both(a, b int, each func(task int, first, second *cell)) {
	for t := range g.tasks {
		x, y := g.cells[a][t], g.cells[b][t]
		if x != nil && y != nil && !math.IsNaN(x.score) && !math.IsNaN(y.score) {
			each(t, x, y)
		}
	}
}

// pairs compares each variant with each one after it.
func (g *grid) pairs(vs []record.TrialVariant) []Pair {
	out := []Pair{}
	draws := max(1, len(vs)*(len(vs)-1)/2*len(g.tasks)) // of one resample of each pair
	resamples := min(maxResamples, max(minResamples, maxDraws/draws))
	var ps []float64
	var of []int // the pairs that have a P
	for b := range vs {
		for a := b + 1; a < len(vs); a++ {
			p := g.pair(a, b, resamples)
			if p.P != nil {
				ps, of = append(ps, *p.P), append(of, len(out))
			}
			out = append(out, p)
		}
	}
	for n, adjusted := range statistics.Holm(ps) {
		out[of[n]].Adjusted = &adjusted
	}
	return out
}

// pair compares two variants.
func (g *grid) pair(a, b, resamples int) Pair {
	var paired statistics.Paired
	var differences []statistics.Score
	g.both(a, b, func(_ int, x, y *cell) {
		first, second := x.score, y.score
		paired.Add(first, second)
		differences = append(differences, statistics.Score{Value: second - first})
	})
	d := paired.Difference(confidence)
	p := Pair{First: g.names[a], Second: g.names[b], Tasks: d.Items, Better: d.Up, Worse: d.Down,
		Difference: finite(d.Mean), Low: finite(d.Interval[0]), High: finite(d.Interval[1]), P: finite(d.P), Test: d.Test,
		Detectable: finite(d.Detectable)}
	if d.Test != statistics.TestMcNemar && p.Low != nil { // it has none if all tasks differ by the same
		i := statistics.Bootstrap(differences, confidence, resamples, seed)
		p.Low, p.High = finite(i[0]), finite(i[1])
	}
	return p
}

// passes returns how likely trials are right together, of all numbers of trials up to the
// replications, at most 10 and then doubled.
func (g *grid) passes(replications int) []Pass {
	out := []Pass{}
	for k := 1; k <= replications; k = next(k) {
		p := Pass{K: k}
		for v := range g.names {
			one, all, tasks := g.pass(v, k)
			p.Any, p.All, p.Tasks = append(p.Any, one), append(p.All, all), append(p.Tasks, tasks)
		}
		out = append(out, p)
	}
	return out
}

func next(k int) int {
	if k < 10 {
		return k + 1
	}
	return 2 * k
}

// pass returns the means of pass@k and pass^k over the tasks of a variant that have k scores.
func (g *grid) pass(v, k int) (anyOf, allOf *float64, tasks int) {
	one, _ := statistics.ParseReducer(fmt.Sprint("pass_at_", k)) // k is at least 1
	all, _ := statistics.ParseReducer(fmt.Sprint("pass_all_", k))
	x, y := 0.0, 0.0
	for t := range g.tasks {
		c := g.cells[v][t]
		if c == nil || len(c.scores) < k {
			continue
		}
		x, y, tasks = x+one.Reduce(c.scores, right), y+all.Reduce(c.scores, right), tasks+1
	}
	return finite(x / float64(tasks)), finite(y / float64(tasks)), tasks
}

// extremes returns the tasks of which no trial is right, and those of which all are.
func (g *grid) extremes() (unsolved, solved Tasks) {
	unsolved.First, solved.First = []string{}, []string{}
	for t, id := range g.tasks {
		n, ok := 0, 0
		for v := range g.names {
			if c := g.cells[v][t]; c != nil {
				for _, s := range c.scores {
					n++
					if s >= right {
						ok++
					}
				}
			}
		}
		switch {
		case ok == 0:
			unsolved.add(id)
		case ok == n:
			solved.add(id)
		}
	}
	return unsolved, solved
}

func (t *Tasks) add(id string) {
	if t.Count++; len(t.First) < maxListed {
		t.First = append(t.First, id)
	}
}

// flips returns the tasks on which two variants differ most, the largest difference first, and how
// many there are on which the second is better, and worse.
func (g *grid) flips(a, b int) (out []Flip, better, worse int) {
	type difference struct {
		task int
		size float64
	}
	var all []difference
	g.both(a, b, func(t int, x, y *cell) {
		d := y.score - x.score
		switch {
		case d > 0:
			better++
		case d < 0:
			worse++
		default:
			return
		}
		all = append(all, difference{t, math.Abs(d)})
	})
	slices.SortStableFunc(all, func(x, y difference) int { return cmp.Compare(y.size, x.size) })
	out = []Flip{}
	for _, d := range all[:min(len(all), maxFlips)] {
		x, y := g.cells[a][d.task], g.cells[b][d.task]
		f := Flip{Task: g.tasks[d.task], First: Side{Mean: x.score}, Second: Side{Mean: y.score}}
		i, k := differing(x, y)
		f.First.show(x, i)
		f.Second.show(y, k)
		out = append(out, f)
	}
	return out, better, worse
}

func (s *Side) show(c *cell, n int) {
	s.Trial, s.Score, s.class = c.trials[n].id, &c.scores[n], c.trials[n].class
}

// differing returns a trial of each cell to show: of the first replication in which their scores
// differ in the direction in which their means do, else the first ones.
func differing(x, y *cell) (int, int) {
	up := y.score > x.score
	for i, a := range x.trials {
		for k, b := range y.trials {
			if a.replication == b.replication && x.scores[i] != y.scores[k] && (y.scores[k] > x.scores[i]) == up {
				return i, k
			}
		}
	}
	return 0, 0
}

// finite returns nil for a number that is not one.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
