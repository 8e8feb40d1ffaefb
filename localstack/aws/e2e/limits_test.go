package e2e

import (
	"testing"

	"rollout/shared/core/run"
)

// A budget is overshot by no more than what the workers have in flight, and the run ends
// with the answers that it has.
func TestTokenBudgetHoldsOnTheStack(t *testing.T) {
	t.Parallel()
	const budget, machines, inFlight, dearest = 1000, 2, 4, 40 // tokens of the dearest request
	s := serve(t, "--latency", "20ms")
	a := open(t, s, "max_machines = 2\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, machines); err != nil {
		t.Fatal(err)
	}
	a.put("prompts/dear.toml", "schema_version = 1\n[limits]\ntokens = 1000\n[sampling]\nmax_tokens = 20\n")
	o := a.awaitEnd(a.put("prompts/dear.jsonl", simplePrompts(640)))
	sum := o.summary
	used := sum.PromptTokens + sum.CompletionTokens + sum.WastedTokens
	if sum.Phase != string(run.OverBudget) || sum.Completed == 0 || used < budget-dearest ||
		used > budget+machines*inFlight*dearest {
		t.Errorf("the run is %s with %d answers, and used %d tokens of %d", sum.Phase, sum.Completed, used, budget)
	}
	if sum.Completed+sum.Failed != 640 || uint64(sum.FailedByClass["budget"]) != sum.Failed {
		t.Errorf("the summary is %+v", sum)
	}
}

// The worker that meets the first failed item asks nothing more at once.
func TestFailFastHoldsOnTheStack(t *testing.T) {
	t.Parallel()
	s := serve(t, "--latency", "200ms")
	a := open(t, s, "max_machines = 1\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 1); err != nil {
		t.Fatal(err)
	}
	a.put("prompts/strict.toml", "schema_version = 1\n[limits]\nfail_fast = true\n")
	from := s.requests()
	o := a.awaitEnd(a.put("prompts/strict.jsonl", "no prompt\n"+simplePrompts(639)))
	if sum := o.summary; sum.Phase != string(run.Failed) || sum.Completed+sum.Failed != 640 {
		t.Errorf("the summary is %+v", sum)
	}
	if n := s.requests() - from; n > 8 {
		t.Errorf("%d items were asked, of which 4 are in flight at once", n)
	}
}
