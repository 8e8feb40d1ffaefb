package regressions

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
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
