package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"rollout/scripts/rollout/sample"
	"rollout/shared/core/estimate"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// seededPrompts is a plain file whose prompts and answers have lengths by a seed: the server
// repeats the prompt and stops at max_tokens.
func seededPrompts(items int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for n := range items {
		words := 3 + int(20*r.ExpFloat64())
		fmt.Fprintf(&b, "{\"id\":\"%04d\",\"prompt\":\"%s\",\"max_tokens\":%d}\n", n, strings.Repeat("word ", words),
			1+int(30*r.ExpFloat64()))
	}
	return b.String()
}

// A sample tells what the whole file takes, before the whole is asked, and the command that
// submits it.
func TestASampleTellsWhatTheWholeTakes(t *testing.T) {
	t.Parallel()
	const items = 800
	i := install(t, serve(t).url, 1, "[engine]\nprompt_price = 1000.0\ncompletion_price = 2000.0\n")
	file := promptsFile(t, seededPrompts(items, 7))
	var got sample.Estimate
	out := do(t, 0, "submit", file, "--dir", i.dir, "--sample", "200", "--seed", "3", "--json").stdoutText()
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Items != items || got.Sampled != 200 ||
		got.Answered != 200 || got.Name != "prompts-sample" || got.Seed != 3 || got.Seconds == nil {
		t.Fatalf("the estimate is %s, %v", out, err)
	}
	if s := i.onlyRunOf("prompts-sample.jsonl"); s.Run != got.Run {
		t.Errorf("status has the run %s, and the estimate says %s", s.Run, got.Run)
	}
	rest, known := strings.CutPrefix(got.Submit, "rollout ")
	if !known {
		t.Fatalf("the command is %q", got.Submit)
	}
	whole := i.awaitEnd(identity.RunID(strings.TrimSpace(do(t, 0, strings.Fields(rest)...).stdoutText())))
	if n := whole.Items.Total; n != items {
		t.Errorf("the whole has %d items", n)
	}
	prompt, completion := float64(whole.Tokens.Prompt), float64(whole.Tokens.Completion)
	var sum record.Summary
	summary := read(t, i.bucket(whole.Summary))
	err := json.Unmarshal([]byte(summary), &sum)
	if err != nil || math.Abs(sum.CostUSD-(prompt+2*completion)/1000) > 1e-6 {
		t.Errorf("the summary is %s, %v", summary, err)
	}
	for name, c := range map[string]struct {
		got   *estimate.Interval
		truth float64
	}{
		"prompt tokens": {got.PromptTokens, prompt}, "completion tokens": {got.CompletionTokens, completion},
		"tokens": {got.Tokens, prompt + completion}, "dollars": {got.Dollars, (prompt + 2*completion) / 1000},
	} {
		if c.got == nil || c.truth < c.got.Low || c.truth > c.got.High || c.got.High-c.got.Low > c.truth {
			t.Errorf("%s of the whole are %v, and the estimate was %+v", name, c.truth, c.got)
		}
	}
}

// The first lines are a run of their own too, which fails if one of its items does, and the
// estimate is there all the same.
func TestTheHeadOfAFileThatFailsIsEstimatedAndExitsWith1(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t, "--refuse", "sour").url, 1, "")
	file := promptsFile(t, "{\"id\":\"a\",\"prompt\":\"a sour one\"}\n"+simplePrompts(30))
	p := do(t, 1, "submit", file, "--dir", i.dir, "--limit", "10")
	for _, want := range []string{"the whole file: 31 items, estimated from the first 10", "completion tokens",
		"1 item of the sample failed", "submit the whole: rollout submit " + file} {
		if out := p.stdoutText(); !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	i.onlyRunOf("prompts-head.jsonl")
}
