package infer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/infer"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
)

// whitespace returns a step whose answer is only white space, with these tokens.
func whitespace(prompt, completion int64) step {
	return func(context.Context, func()) error {
		return &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Op: "answer",
			Err: &engine.PartialUsage{Err: engine.ErrWhitespace,
				Usage: engine.Usage{PromptTokens: prompt, CompletionTokens: completion}}}
	}
}

func TestC23WhitespaceIsRetriedWithOtherSeedAndCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line     string
		script   []step
		class    fault.Class
		requests int
		wasted   int64
	}{
		"once":   {`{"prompt":"x"}`, times(1, whitespace(10, 100)), "", 2, 110},
		"always": {`{"prompt":"x"}`, times(9, whitespace(10, 100)), fault.Engine, 3, 330},
		"seed given": {`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","seed":7}}`,
			times(2, whitespace(1, 2)), "", 3, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				if strings.Contains(c.line, "custom_id") {
					m.Dialect = "openai"
				}
				d := newFixture(t, m, c.line+"\n", map[string][]step{`"x"`: c.script})
				d.work(time.Minute)
				seeds := map[string]bool{}
				for n, a := range d.engine.requests {
					_, seed, _ := strings.Cut(a.body, `"seed":`)
					if seeds[seed] {
						t.Errorf("request %d has the seed of an earlier one: %s", n, a.body)
					}
					seeds[seed] = true
					if same, _, _ := strings.Cut(a.body, `"seed":`); !strings.HasPrefix(d.engine.requests[0].body, same) {
						t.Errorf("more than the seed differs: %s", a.body)
					}
				}
				doc := d.shard()
				failed := len(c.class) / max(1, len(c.class)) // 1 if there is a class, else 0
				if len(seeds) != c.requests || doc.Counts.WastedTokens != c.wasted ||
					doc.Counts.ByClass[string(c.class)] != failed {
					t.Errorf("%d requests, counts %+v", len(seeds), doc.Counts)
				}
			})
		})
	}
}

// failsAfter returns a step that fails after it took some tokens.
func failsAfter(kind fault.Kind, completion int64) step {
	return func(context.Context, func()) error {
		return &fault.Error{Kind: kind, Op: "answer", Err: &engine.PartialUsage{
			Usage: engine.Usage{CompletionTokens: completion}, Err: fmt.Errorf("connection broken")}}
	}
}

func TestWastedTokensCountRequestsWithoutRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decodes int
		script  []step
		wasted  int64
	}{
		"failed requests before the answer": {1, []step{failsAfter(fault.Corrupt, 5), failsAfter(fault.Unavailable, 7)}, 12},
		"refused after a failure":           {1, []step{failsAfter(fault.Corrupt, 5), failsAfter(fault.Invalid, 0)}, 5},
		"answers beside a failed request": { // the mock counts 5 words
			3, append([]step{nil, nil}, times(1, failsAfter(fault.Invalid, 3))...), 2*(5+5) + 3},
		"hung after some tokens": {1, []step{hangsAfter(4)}, 4},
		"no failure":             {1, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := `{"prompt":"x has just five words"}` + "\n"
				d := newFixture(t, manyDecodes(c.decodes), line, map[string][]step{`"x has`: c.script})
				d.work(5 * time.Minute)
				if got := d.shard().Counts; got.WastedTokens != c.wasted || got.OK+got.Failed != 1 {
					t.Errorf("%+v, want %d wasted", got, c.wasted)
				}
			})
		})
	}
}

// hangsAfter returns a step that gives some pieces, then hangs.
func hangsAfter(pieces int64) step {
	return func(ctx context.Context, _ func()) error {
		<-ctx.Done()
		return fault.WithKind(fault.Canceled, &engine.PartialUsage{
			Usage: engine.Usage{CompletionTokens: pieces}, Err: context.Cause(ctx)}, "answer")
	}
}

func TestTokensOfCancelledRequestAreWasted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), map[string][]step{"prompt": {hangsAfter(40)}})
		d.work(time.Second)
		d.worker.Drain("test")
		advance(10 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.WastedTokens != 40 {
			t.Fatalf("%+v", doc)
		}
		d.work(time.Second)
		if got := d.shard().Counts; got.OK != 1 || got.WastedTokens != 40 {
			t.Errorf("%+v", got)
		}
	})
}

// clamping is an engine that lowers max_tokens.
type clamping struct{ *scripted }

func (c clamping) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a, err := c.scripted.Answer(ctx, r, progress)
	a.MaxTokens = 17
	return a, err
}

func TestC19RowSaysThatMaxTokensWasLowered(t *testing.T) {
	t.Parallel()
	for dialect, c := range map[string]struct{ line, want string }{
		"plain": {`{"prompt":"x"}`, `"finish_reason":"stop","max_tokens_clamped":17`},
		"openai": {`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}}`,
			`"finish_reason":"stop","max_tokens_clamped":17}]`},
		"bedrock": {`{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"x"}]}}`,
			`"max_tokens_clamped":17}`},
		"vertex": {`{"request":{"contents":[{"role":"user","parts":[{"text":"x"}]}]}}`,
			`"finishReason":"STOP","maxTokensClamped":17}]`},
	} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				m.Dialect = dialect
				d := newFixture(t, m, c.line+"\n", nil)
				d.work(time.Second, func(cfg *infer.Config) { cfg.Engine = clamping{d.engine} })
				if got := hosttest.Object(t, d.Ports, d.shard().Result.Key); !strings.Contains(got, c.want) {
					t.Errorf("the row is %s, want it to contain %s", got, c.want)
				}
			})
		})
	}
}

// cutter is an engine whose answers to prompts with "long" are cut, and to prompts
// with "mute" have neither a finish reason nor usage; those with "cached" have details of theirs.
type cutter struct{ engine.Engine }

func (e cutter) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a, err := e.Engine.Answer(ctx, r, progress)
	switch body := string(r.Body); {
	case strings.Contains(body, "long"):
		a.FinishReason = "length"
	case strings.Contains(body, "mute"):
		a.FinishReason, a.Usage.Unknown = "", true
	case strings.Contains(body, "cached"):
		a.Usage.CachedTokens, a.Usage.ReasoningTokens = 3, 2
	}
	return a, err
}

func TestFinishReasonsAndUsageAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := inputtest.Manifest(0)
		m.Dialect = "openai"
		line := func(id, prompt, more string) string {
			return fmt.Sprintf(`{"custom_id":%q,"url":"/v1/completions","body":{"prompt":%q%s}}`, id, prompt, more) + "\n"
		}
		d := newFixture(t, m, line("a", "x", "")+line("b", "a long one", `,"n":2`)+line("c", "mute", "")+line("d", "y",
			"")+line("e", "cached", `,"n":2`), nil)
		d.work(time.Minute, func(c *infer.Config) { c.Engine = cutter{c.Engine} })
		doc := d.shard()
		if c := doc.Counts; c.OK != 5 || c.Finish["length"] != 1 || c.Finish["none"] != 1 || len(c.Finish) != 2 ||
			c.UsageUnknown != 1 || c.CachedTokens != 3 || c.ReasoningTokens != 4 {
			t.Errorf("counts %+v", c)
		}
	})
}
