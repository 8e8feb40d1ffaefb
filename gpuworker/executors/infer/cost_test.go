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

// blank is a step that ends in white space where a shape was asked for.
func blank(prompt, completion int64) step {
	return func(context.Context, func()) error {
		return &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Op: "answer",
			Err: &engine.PartialUsage{Usage: engine.Usage{PromptTokens: prompt, CompletionTokens: completion}, Err: engine.ErrWhitespace}}
	}
}

func TestC23WhiteSpaceIsAskedAgainWithOtherSeedsAndCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line   string
		script []step
		class  fault.Class
		asks   int
		wasted int64
	}{
		"once":         {`{"prompt":"x"}`, times(1, blank(10, 100)), "", 2, 110},
		"always":       {`{"prompt":"x"}`, times(9, blank(10, 100)), fault.Engine, 3, 330},
		"a given seed": {`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","seed":7}}`, times(2, blank(1, 2)), "", 3, 6},
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
				for n, a := range d.engine.asks {
					_, seed, _ := strings.Cut(a.body, `"seed":`)
					if seeds[seed] {
						t.Errorf("ask %d has a seed that an earlier one had: %s", n, a.body)
					}
					seeds[seed] = true
					if same, _, _ := strings.Cut(a.body, `"seed":`); !strings.HasPrefix(d.engine.asks[0].body, same) {
						t.Errorf("more than the seed differs: %s", a.body)
					}
				}
				doc := d.shard()
				if len(seeds) != c.asks || doc.Counts.WastedTokens != c.wasted || doc.Counts.ByClass[string(c.class)] != len(c.class)/max(1, len(c.class)) {
					t.Errorf("%d asks, counts %+v", len(seeds), doc.Counts)
				}
			})
		})
	}
}

// spends is a step that fails after it cost something.
func spends(kind fault.Kind, completion int64) step {
	return func(context.Context, func()) error {
		return &fault.Error{Kind: kind, Op: "answer", Err: &engine.PartialUsage{Usage: engine.Usage{CompletionTokens: completion}, Err: fmt.Errorf("broke off")}}
	}
}

func TestWastedTokensAreOfEveryRequestThatLedToNoRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decodes int
		script  []step
		wasted  int64
	}{
		"a failed one before the answer":  {1, []step{spends(fault.Corrupt, 5), spends(fault.Unavailable, 7)}, 12},
		"one that was refused after all":  {1, []step{spends(fault.Corrupt, 5), spends(fault.Invalid, 0)}, 5},
		"answers beside one that failed":  {3, append([]step{nil, nil}, times(1, spends(fault.Invalid, 3))...), 2*(5+5) + 3}, // the mock counts 5 words
		"one that hung after some tokens": {1, []step{hung(4)}, 4},
		"none":                            {1, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, manyDecodes(c.decodes), `{"prompt":"x has just five words"}`+"\n", map[string][]step{`"x has`: c.script})
				d.work(5 * time.Minute)
				if got := d.shard().Counts; got.WastedTokens != c.wasted || got.OK+got.Failed != 1 {
					t.Errorf("%+v, want %d wasted", got, c.wasted)
				}
			})
		})
	}
}

// hung is a step that gives some pieces and then none.
func hung(pieces int64) step {
	return func(ctx context.Context, _ func()) error {
		<-ctx.Done()
		return fault.WithKind(fault.Canceled, &engine.PartialUsage{Usage: engine.Usage{CompletionTokens: pieces}, Err: context.Cause(ctx)}, "answer")
	}
}

func TestWhatIsCutOffIsWastedWhoeverGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), map[string][]step{"prompt": {hung(40)}})
		d.work(time.Second)
		d.worker.Drain("go")
		pass(10 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.WastedTokens != 40 {
			t.Fatalf("%+v", doc)
		}
		d.work(time.Second)
		if got := d.shard().Counts; got.OK != 1 || got.WastedTokens != 40 {
			t.Errorf("%+v", got)
		}
	})
}

// clamps is an engine that lowers max_tokens.
type clamps struct{ *scripted }

func (c clamps) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a, err := c.scripted.Answer(ctx, r, progress)
	a.MaxTokens = 17
	return a, err
}

func TestC19ARowSaysThatItsMaxTokensWasLowered(t *testing.T) {
	t.Parallel()
	for dialect, c := range map[string]struct{ line, want string }{
		"plain":   {`{"prompt":"x"}`, `"finish_reason":"stop","max_tokens_clamped":17`},
		"openai":  {`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}}`, `"finish_reason":"stop","max_tokens_clamped":17}]`},
		"bedrock": {`{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"x"}]}}`, `"max_tokens_clamped":17}`},
		"vertex":  {`{"request":{"contents":[{"role":"user","parts":[{"text":"x"}]}]}}`, `"finishReason":"STOP","maxTokensClamped":17}]`},
	} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				m.Dialect = dialect
				d := newFixture(t, m, c.line+"\n", nil)
				d.work(time.Second, func(cfg *infer.Config) { cfg.Engine = clamps{d.engine} })
				if got := hosttest.Object(t, d.Ports, d.shard().Result.Key); !strings.Contains(got, c.want) {
					t.Errorf("%s lacks %s", got, c.want)
				}
			})
		})
	}
}
