package regressions

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// meteredEngine answers like the mock engine after 50 ms, and counts requests and their
// tokens.
type meteredEngine struct {
	tokens          engine.Usage // of each request
	requests, spent atomic.Int64
}

func (m *meteredEngine) answer(ctx context.Context, r engine.Request) (engine.Answer, error) {
	m.requests.Add(1)
	m.spent.Add(m.tokens.PromptTokens + m.tokens.CompletionTokens)
	a, err := after(50*time.Millisecond)(ctx, r)
	a.Usage = m.tokens
	return a, err
}

// A budget of 1,000 tokens used 10,880: it was judged by whole shards. Now it is overshot
// by no more than what is in flight, whatever the shards, the workers and max_tokens, also
// when a server reports no tokens and they are estimated.
func TestBudgetIsOvershotByNoMoreThanWhatIsInFlight(t *testing.T) {
	t.Parallel()
	const each, budget, items = 20, 1000, 600
	for name, c := range map[string]struct {
		shard, workers, maxTokens int
		unknown                   bool
	}{
		"large shards":             {shard: 256, workers: 1, maxTokens: 10},
		"shards of one item":       {shard: 1, workers: 4, maxTokens: 10},
		"dear max_tokens":          {shard: 100, workers: 2, maxTokens: 4096},
		"a server without usage":   {shard: 256, workers: 1, maxTokens: 10, unknown: true},
		"many workers, few tokens": {shard: 50, workers: 8, maxTokens: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[shard]\nitems = %d\n[limits]\ntokens = %d\n[sampling]\nmax_tokens = %d",
					c.shard, budget, c.maxTokens))
				m := &meteredEngine{tokens: engine.Usage{PromptTokens: 10, CompletionTokens: each - 10, Unknown: c.unknown}}
				p.functions()
				for range c.workers {
					p.work(setup{engine: newRecordingEngine(m.answer), inFlight: 16})
				}
				o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(items)))
				o.wantPhase(t, "over_budget")
				o.wantItems(t, items, "budget")
				spent, over := m.spent.Load(), int64(c.workers)*each
				if c.shard == 1 { // all that may be in flight are shards of their own
					over = 16 * int64(c.workers) * each
				}
				used := o.PromptTokens + o.CompletionTokens + o.WastedTokens
				if spent < budget || spent > budget+over || used != spent {
					t.Errorf("%d tokens are spent of a budget of %d, the summary says %d", spent, budget, used)
				}
				time.Sleep(time.Minute) // of simulated time, in which nothing more may be asked
				if again := m.spent.Load(); again != spent {
					t.Errorf("%d tokens are spent after the end", again-spent)
				}
			})
		})
	}
}

// A budget in dollars bounds what the summary's bill says: the tokens and the machines' time.
func TestBudgetInDollarsIsOvershotByNoMoreThanWhatIsInFlight(t *testing.T) {
	t.Parallel()
	const perRequest, tokens, items = 0.02, 20, 600 // dollars, where tokens have a price
	for name, c := range map[string]struct {
		shard, workers int
		tokenPrice     float64 // of a million
		machineSecond  float64 // dollars
		limits         string
		dollars        float64
	}{
		"hosted tokens":     {shard: 256, workers: 1, tokenPrice: 1000, limits: "dollars = 1.0", dollars: 1},
		"shards of an item": {shard: 1, workers: 4, tokenPrice: 1000, limits: "dollars = 1.0", dollars: 1},
		"machines":          {shard: 100, workers: 2, machineSecond: 4, limits: "dollars = 2.0", dollars: 2},
		"tokens and machines": {shard: 50, workers: 4, tokenPrice: 1000, machineSecond: 1,
			limits: "dollars = 5.5\ntokens = 100000", dollars: 5.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.deploy.Engine.PromptPrice, p.deploy.Engine.CompletionPrice = c.tokenPrice, c.tokenPrice
				p.deploy.Pools = []config.Pool{{Name: "default", Model: "mock", Price: 3600 * c.machineSecond}}
				p.configure(fmt.Sprintf("[shard]\nitems = %d\n[sampling]\nmax_tokens = 10\n[limits]\n%s", c.shard, c.limits))
				m := &meteredEngine{tokens: engine.Usage{PromptTokens: 10, CompletionTokens: tokens - 10}}
				p.functions()
				for range c.workers {
					p.work(setup{engine: newRecordingEngine(m.answer), inFlight: 16, price: 3600 * c.machineSecond})
				}
				o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(items)))
				o.wantPhase(t, "over_budget")
				o.wantItems(t, items, "budget")
				last := 0.0 // dollars of the requests that may be in flight at the end
				if c.tokenPrice > 0 {
					last = perRequest
				}
				if c.shard == 1 {
					last *= 16
				}
				most := c.dollars + float64(c.workers)*(last+0.05*c.machineSecond) + o.Cost.Boot + o.Cost.Idle
				if o.CostUSD < c.dollars || o.CostUSD > most {
					t.Errorf("the run costs $%g, want $%g to $%g: %+v", o.CostUSD, c.dollars, most, o.Cost)
				}
				asked := float64(m.requests.Load()) * tokens * c.tokenPrice / 1e6
				if math.Abs(o.Cost.Tokens-asked) > 1e-6 {
					t.Errorf("the tokens cost $%g, the engine was asked for $%g", o.Cost.Tokens, asked)
				}
				i := slices.IndexFunc(o.Budgets, func(b record.Budget) bool { return b.Name == "dollars" })
				if i < 0 || o.Budgets[i].Used != o.CostUSD || o.Budgets[i].Limit != c.dollars ||
					!strings.Contains(o.Message, "limits.dollars") {
					t.Errorf("the summary says %q, with %+v", o.Message, o.Budgets)
				}
			})
		})
	}
}

// Where nothing has a price, a budget in dollars would never end a run.
func TestBudgetInDollarsIsRefusedWithoutAPrice(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[limits]\ndollars = 1.0")
		p.functions()
		id := p.upload("prompts/x.jsonl", prompts(3))
		var m record.Manifest
		p.await("the run is refused", func() bool {
			_, _, err := host.Load(t.Context(), p.ports.Docs, record.ManifestKey(id), &m)
			must(t, err)
			return m.Refused != ""
		})
		if why := m.Refused; !strings.Contains(why, "limits.dollars") || !strings.Contains(why, "price") {
			t.Errorf("it is refused with %q", why)
		}
	})
}

// All 99 other items of a shard were asked after the first one had failed.
func TestFailFastAsksNothingMore(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 100\n[limits]\nfail_fast = true")
		var asked atomic.Int64
		p.functions()
		p.work(setup{inFlight: 4, engine: newRecordingEngine(
			func(ctx context.Context, r engine.Request) (engine.Answer, error) {
				asked.Add(1)
				if bytes.Contains(r.Body, []byte(`"number 0"`)) {
					return engine.Answer{}, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
						Err: fault.New(fault.Invalid, "refused")}
				}
				return after(time.Second)(ctx, r)
			})})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(100)))
		o.wantPhase(t, "failed")
		if n := asked.Load(); n > 5 || o.Completed != uint64(n-1) {
			t.Errorf("%d items are asked, %d are answered", n, o.Completed)
		}
	})
}
