package scenarios

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/localstack/fakellm"
	"rollout/shared/core/cost"
	"rollout/shared/core/run"
	"rollout/shared/prices"
)

// A budget is overshot by no more than what the workers have in flight, and the run ends
// with the answers that it has.
func tokenBudgetHolds(t *testing.T, c Cloud) {
	const budget, machines, inFlight, dearest = 1000, 2, 4, 40 // tokens of the dearest request
	d := deploy(t, c, fakellm.Config{Latency: 20 * time.Millisecond}, Settings{Machines: machines})
	d.Upload("prompts/dear.toml", "schema_version = 1\n[shard]\nitems = 8\n[limits]\ntokens = 1000\n"+
		"[sampling]\nmax_tokens = 20\n")
	sum := d.AwaitEnd(d.Put("prompts/dear.jsonl", SimplePrompts(640))).Summary
	used := sum.PromptTokens + sum.CompletionTokens + sum.WastedTokens
	if sum.Phase != string(run.OverBudget) || sum.Completed == 0 || used < budget-dearest ||
		used > budget+machines*inFlight*dearest {
		t.Errorf("the run is %s with %d answers, and used %d tokens of %d", sum.Phase, sum.Completed, used, budget)
	}
	if sum.Completed+sum.Failed != 640 || uint64(sum.FailedByClass["budget"]) != sum.Failed {
		t.Errorf("the summary is %+v", sum)
	}
	d.Check()
}

// A budget in dollars ends the run with the answers that it has. It is overshot by no more than
// the requests in flight and the machines' time, and the bill agrees with the tokens that the
// server counted, but for requests whose answers were not waited for, and with the time that
// machines can have had.
func dollarBudgetHolds(t *testing.T, c Cloud) {
	const budget, price, machines, inFlight, dearest = 5.0, 1000.0, 2, 4, 40 // dollars; for a million; tokens
	const latency = 20 * time.Millisecond
	dollars := func(tokens int64) float64 { return float64(tokens) * price / 1e6 }
	began := time.Now()
	d := deploy(t, c, fakellm.Config{Latency: latency}, Settings{Machines: machines,
		More: fmt.Sprintf("prompt_price = %v\ncompletion_price = %v\n", price, price)})
	d.Upload("prompts/dear.toml", fmt.Sprintf("schema_version = 1\n[shard]\nitems = 8\n[limits]\ndollars = %v\n"+
		"[sampling]\nmax_tokens = 20\n", budget))
	sum := d.AwaitEnd(d.Put("prompts/dear.jsonl", SimplePrompts(2400))).Summary
	took := time.Since(began).Hours()
	bill := sum.Cost
	rented := bill.Machines + bill.Boot + bill.Idle
	if sum.Phase != string(run.OverBudget) || sum.Completed == 0 || sum.Completed+sum.Failed != 2400 ||
		uint64(sum.FailedByClass["budget"]) != sum.Failed {
		t.Errorf("the run is %s with %d answers, and failed %v", sum.Phase, sum.Completed, sum.FailedByClass)
	}
	most := budget + machines*inFlight*dearest*price/1e6 + rented + bill.Functions + bill.Storage
	if sum.CostUSD < budget || sum.CostUSD > most {
		t.Errorf("the run cost $%v of $%v, want at most $%v: %+v", sum.CostUSD, budget, most, bill)
	}
	counted, estimated := dollars(d.server.Tokens()), dollars(sum.WastedEstimated)
	unbilled := dollars(int64(d.server.Requests()-int(sum.Completed)) * dearest)
	if bill.Tokens > 1.001*counted+estimated || counted-bill.Tokens > unbilled+counted/1000 {
		t.Errorf("the bill has $%v of tokens, and the server counted those of $%v, at most $%v for no answer", bill.Tokens,
			counted, unbilled)
	}
	hours, least := bill.BusyHours+bill.BootHours+bill.IdleHours, float64(sum.Completed)*latency.Hours()/inFlight
	if len(bill.ByMachine) != 1 || bill.ByMachine[0].USD == nil {
		t.Fatalf("the machines are %+v, want those of one type, with a price", bill.ByMachine)
	}
	if hours > 1.1*machines*took || bill.BusyHours < 0.9*least {
		t.Errorf("the bill has %v hours of machines, of which %v busy, want between %v and %v: %+v", hours, bill.BusyHours,
			least, machines*took, bill)
	}
	list := prices.Of(c.Provider).Hour(cost.Kind{Type: bill.ByMachine[0].Type, Class: bill.ByMachine[0].Class})
	if list <= 0 || math.Abs(rented-hours*list) > rented/10 {
		t.Errorf("%v hours at $%v cost $%v", hours, list, rented)
	}
	if len(sum.Budgets) != 1 || sum.Budgets[0].Name != "dollars" || sum.Budgets[0].Used != sum.CostUSD {
		t.Errorf("the budgets are %+v, and the run cost $%v", sum.Budgets, sum.CostUSD)
	}
	d.Check()
}

// The worker that meets the first failed item asks nothing more at once. Each shard has one,
// because queues keep no order.
func failFastHolds(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{Latency: 200 * time.Millisecond}, Settings{Machines: 1})
	d.Upload("prompts/strict.toml", "schema_version = 1\n[shard]\nitems = 8\n[limits]\nfail_fast = true\n")
	const shards = 80
	content := strings.Repeat("no prompt\n"+promptsOf("strict run", itemsOfAShard-1), shards)
	sum := d.AwaitEnd(d.Put("prompts/strict.jsonl", content)).Summary
	if sum.Phase != string(run.Failed) || sum.Completed+sum.Failed != itemsOfAShard*shards {
		t.Errorf("the summary is %+v", sum)
	}
	if n := d.server.Requests(); n > 8 {
		t.Errorf("%d items were asked, of which 4 are in flight at once", n)
	}
	d.Check()
}

// A run that is uploaded while another one has more than 200 shards in the queue has its
// first request before the other has had those of 15 s: a machine answers 20 a second, by
// 4 at once that take 200 ms each. The test counts requests, as a busy machine is slower.
func newRunHasItsShare(t *testing.T, c Cloud) {
	var large, small atomic.Int64
	var before atomic.Int64 // requests of the large run when the small one has its first
	count := func(body []byte) (string, bool) {
		switch {
		case bytes.Contains(body, []byte("large run")):
			large.Add(1)
		case bytes.Contains(body, []byte("small run")) && small.Add(1) == 1:
			before.Store(large.Load())
		}
		return "", false
	}
	d := deploy(t, c, fakellm.Config{Latency: 200 * time.Millisecond, Script: count}, Settings{Machines: 1})
	const shards = 220
	id := d.Put("prompts/large.jsonl", promptsOf("large run", itemsOfAShard*shards))
	Eventually(t, "the large run has more than 200 shards in the queue", func() bool {
		return large.Load() >= 40 && d.state(id).NextShard > 210
	})
	submitted := large.Load()
	if o := d.AwaitEnd(d.Put("prompts/small.jsonl", promptsOf("small run", 80))); o.Summary.Completed != 80 {
		t.Errorf("%d of 80 items of the small run are answered", o.Summary.Completed)
	}
	if n := before.Load() - submitted; n > 300 {
		t.Errorf("the small run had its first request after %d of the large one, want at most those of 15 s: 300", n)
	}
	if p := d.Phase(id); p != run.Running {
		t.Errorf("the large run is %s: the small one waited for it", p)
	}
	d.Check()
}

// promptsOf returns n prompts of a run.
func promptsOf(name string, n int) string {
	var b strings.Builder
	for k := range n {
		fmt.Fprintf(&b, "{\"prompt\":\"%s %d\"}\n", name, k)
	}
	return b.String()
}
