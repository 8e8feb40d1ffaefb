package trials

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// priced is a deployment with pools of two models and of a judge: the tokens of the first have no
// price.
func priced() config.Deployment {
	engine := func(price float64) config.Engine {
		return config.Engine{PromptPrice: price, CompletionPrice: 10 * price}
	}
	return config.Deployment{Engines: map[string]config.Engine{"large": engine(1), "judge": engine(2)},
		Pools: []config.Pool{
			{Name: "default", Model: "small"}, {Name: "large", Model: "large", Engine: "large"},
			{Name: "judges", Model: "wise", Engine: "judge"}}}
}

// modelsRun is a run whose second variant has a model of its own, and its roles' counts.
func modelsRun(f *fixture) []record.RoleCounts {
	f.m.Pool, f.m.ModelURI, f.m.Config.Variants[1].Model = "default", "small", "large"
	f.m.Roles = []record.Role{{Name: "judge-j", Pool: "judges", ModelURI: "wise"},
		{Name: "answer-terse", Pool: "large", ModelURI: "large", ModelID: identity.Model("large", "").String(), Output: true}}
	return []record.RoleCounts{{Pool: "default"}, {Pool: "judges", PromptTokens: 1e6, CompletionTokens: 1e5},
		{Pool: "large", Output: true, PromptTokens: 5e6}}
}

// Each variant costs what the engine of its model asks for its tokens, and the judges are apart.
// What has no price is null.
func TestVariantsCostWhatTheirModelsCost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, graded(), tasks(3))
	roles := modelsRun(f)
	f.finish(func(of Trial) answer { // of task 0 all trials are right, of task 1 the first, of task 2 none
		return answer{score: map[string]float64{"task-0": 1, "task-1": float64(1 - of.Replication)}[of.Task]}
	})
	e := f.ended(12)
	e.Deployment, e.Roles = priced(), roles
	got, err := e.Publish(t.Context())
	f.check(err)
	num := func(x float64) *float64 { return &x }
	const trial = (3 + 2*10) / 1e6 // dollars of one answer of the model large
	for n, want := range []record.TrialVariant{
		{Model: "small", SolvedTasks: 2, UntilSuccess: &record.UntilSuccess{Trials: 1.5}},
		{Model: "large", TokensUSD: num(6 * trial), SolvedTasks: 2, USDPerSolved: num(3 * trial),
			UntilSuccess: &record.UntilSuccess{Trials: 1.5, USD: num(1.5 * trial)}},
	} {
		v := got.Variants[n]
		v = record.TrialVariant{Model: v.Model, TokensUSD: v.TokensUSD, SolvedTasks: v.SolvedTasks,
			USDPerSolved: v.USDPerSolved, UntilSuccess: v.UntilSuccess}
		if diff := cmp.Diff(want, v, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("variant %d (-want +got)\n%s", n, diff)
		}
	}
	if got.JudgesUSD == nil || *got.JudgesUSD != 4 {
		t.Errorf("the judges cost %v", got.JudgesUSD)
	}
	roles[1].Pool = "default"
	if d := judgesUSD(e.Deployment, roles); d != nil {
		t.Errorf("judges without a price cost %g", *d)
	}
}

// A variant that solves nothing has no cost of a success, and not one of 0.
func TestVariantWithoutASuccessHasNoCostOfOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t, graded(), tasks(2))
	roles := modelsRun(f)
	f.finish(func(Trial) answer { return answer{score: 0.5} })
	e := f.ended(8)
	e.Deployment, e.Roles = priced(), roles[:1]
	got, err := e.Publish(t.Context())
	f.check(err)
	if v := got.Variants[1]; v.TokensUSD == nil || v.SolvedTasks != 0 || v.USDPerSolved != nil || v.UntilSuccess != nil {
		t.Errorf("%+v", v)
	}
	if got.JudgesUSD != nil {
		t.Errorf("a run without judges has judges of %g dollars", *got.JudgesUSD)
	}
}

func TestTimesOfSuccessesAreThoseOfAgents(t *testing.T) {
	t.Parallel()
	fact := func(score, seconds float64) Fact {
		return Fact{Score: &score, Agent: json.RawMessage(fmt.Sprintf(`{"seconds":%g}`, seconds))}
	}
	v := &variantSums{}
	for n := range 10 { // the successes of task a take 1, 2, … 10 s
		v.costs.add("a", fact(1, float64(10-n)))
	}
	v.costs.add("b", fact(1, 4)) // 4 and 6 s, one success
	v.costs.add("b", fact(0, 6))
	v.costs.add("c", fact(0, 100)) // which is not solved
	v.priced(config.Engine{})
	got := v.UntilSuccess
	if got == nil || *got.Seconds != (5.5+10)/2 || *got.SuccessMedian != 5 || *got.SuccessP90 != 9 || got.Trials != 1.5 {
		t.Errorf("%+v", got)
	}
	failed := &variantSums{} // by an agent whose row has neither its time nor its tokens
	counted := fact(1, 3)
	counted.PromptTokens, counted.CompletionTokens = new(int64(1000)), new(int64(1000))
	failed.costs.add("a", counted)
	failed.costs.add("a", Fact{Score: new(0.0)})
	failed.priced(config.Engine{PromptPrice: 1, CompletionPrice: 1})
	if got := failed.UntilSuccess; got == nil || got.Seconds != nil || got.USD != nil || *got.SuccessMedian != 3 {
		t.Errorf("with a failed agent: %+v", got)
	}
	prompt := &variantSums{}
	prompt.costs.add("a", fact(1, 1))
	prompt.costs.add("a", Fact{Score: new(1.0)})
	prompt.priced(config.Engine{})
	if got := prompt.UntilSuccess; got == nil || got.Seconds != nil || got.SuccessMedian != nil || got.SuccessP90 != nil {
		t.Errorf("trials that are not timed: %+v", got)
	}
}
