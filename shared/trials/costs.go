package trials

import (
	"encoding/json"
	"math"
	"slices"

	"rollout/shared/config"
	"rollout/shared/record"
)

// success is the score from which on a trial succeeds.
const success = 1

// taskCosts is what the trials with a score of one task took, under one variant.
type taskCosts struct {
	trials, successes  int
	prompt, completion int64 // tokens
	micros             int64 // of agents
}

// costs are what the trials of a variant took. Sums are of whole numbers, so that the order of the
// rows does not decide how they are rounded.
type costs struct {
	tasks map[string]*taskCosts
	took  []int64 // microseconds of each trial that succeeds
	// What is not known of a trial with a score: how long it took, and its tokens. Both hold for a
	// failed agent, whose row has neither.
	untimed, uncounted bool
	untimedSuccess     bool // a trial that succeeds is of no agent
}

// add takes in a trial with a score.
func (c *costs) add(task string, f Fact) {
	if c.tasks == nil {
		c.tasks = map[string]*taskCosts{}
	}
	t := c.tasks[task]
	if t == nil {
		t = &taskCosts{}
		c.tasks[task] = t
	}
	t.trials++
	if f.PromptTokens != nil {
		t.prompt, t.completion = t.prompt+*f.PromptTokens, t.completion+*f.CompletionTokens
	} else {
		c.uncounted = true
	}
	micros, timed := secondsOf(f)
	t.micros += micros
	c.untimed = c.untimed || !timed
	if *f.Score >= success {
		t.successes++
		c.untimedSuccess = c.untimedSuccess || !timed
		c.took = append(c.took, micros)
	}
}

// secondsOf returns how long the agent of a trial ran, in microseconds; ok is false without one.
func secondsOf(f Fact) (micros int64, ok bool) {
	var agent struct{ Seconds *float64 }
	if f.Agent == nil || json.Unmarshal(f.Agent, &agent) != nil || agent.Seconds == nil {
		return 0, false
	}
	return int64(math.Round(*agent.Seconds * 1e6)), true
}

// priced fills in what a variant cost whose tokens have the prices of the engine.
func (v *variantSums) priced(e config.Engine) {
	known := e.HasPrices()
	if known {
		v.TokensUSD = new(e.Dollars(float64(v.PromptTokens), float64(v.CompletionTokens)))
	}
	var tries, dollars, micros []float64 // of the tasks that it solves
	for _, t := range v.costs.tasks {
		if t.successes == 0 {
			continue
		}
		n := float64(t.successes)
		tries = append(tries, float64(t.trials)/n)
		dollars = append(dollars, e.Dollars(float64(t.prompt), float64(t.completion))/n)
		micros = append(micros, float64(t.micros)/n)
	}
	if v.SolvedTasks = len(tries); v.SolvedTasks == 0 {
		return
	}
	v.UntilSuccess = &record.UntilSuccess{Trials: mean(tries)}
	if known {
		v.USDPerSolved = new(*v.TokensUSD / float64(v.SolvedTasks))
	}
	if known && !v.costs.uncounted {
		v.UntilSuccess.USD = new(mean(dollars))
	}
	if !v.costs.untimed {
		v.UntilSuccess.Seconds = new(mean(micros) / 1e6)
	}
	if !v.costs.untimedSuccess {
		slices.Sort(v.costs.took)
		v.UntilSuccess.SuccessMedian, v.UntilSuccess.SuccessP90 = quantile(v.costs.took, 0.5), quantile(v.costs.took, 0.9)
	}
}

// mean returns the mean of at least one number. It does not depend on their order.
func mean(xs []float64) float64 {
	slices.Sort(xs)
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// quantile returns the least of sorted microseconds that such a share of them does not exceed, in
// seconds.
func quantile(sorted []int64, share float64) *float64 {
	n := int(math.Ceil(share*float64(len(sorted)))) - 1
	return new(float64(sorted[max(0, n)]) / 1e6)
}

// judgesUSD returns what the tokens of the judges of a run cost, of which the roles have the counts;
// nil without judges, or without prices of one of them.
func judgesUSD(d config.Deployment, roles []record.RoleCounts) *float64 {
	sum, found := 0.0, false
	for n, r := range roles {
		if n == 0 || r.Output {
			continue
		}
		e := d.ForPool(r.Pool).Engine
		if !e.HasPrices() {
			return nil
		}
		sum, found = sum+e.Dollars(float64(r.PromptTokens), float64(r.CompletionTokens)), true
	}
	if !found {
		return nil
	}
	return &sum
}
