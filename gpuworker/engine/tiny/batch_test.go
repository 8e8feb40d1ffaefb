package tiny_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/sampling"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/tokenizer"
)

// untrained returns an engine with an untrained decoder of two layers. Its answers
// have no meaning, but are always the same.
func untrained(t testing.TB, threads int, batch scheduler.Config) *tiny.Engine {
	t.Helper()
	open := make(chan struct{})
	close(open)
	return gatedUntrained(t, threads, batch, open)
}

// gatedModel is a model whose steps wait until open is closed.
type gatedModel struct {
	scheduler.Model
	open <-chan struct{}
}

func (g gatedModel) Step(slots []scheduler.Slot, logits [][]float32) error {
	<-g.open
	return g.Model.Step(slots, logits)
}

func gatedUntrained(t testing.TB, threads int, batch scheduler.Config, open <-chan struct{}) *tiny.Engine {
	t.Helper()
	const text = "in the beginning was the word and the word was with light and the light was in the prism "
	tok, err := tokenizer.Train(slices.Values([]string{strings.Repeat(text, 8)}), 290)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{
		Vocab: tok.Vocab(), Width: 32, Layers: 2, Heads: 2, HeadSize: 16, Hidden: 48, Context: 96,
		RopeBase: 10000, NormEpsilon: 1e-5,
	}, 7)
	if err != nil {
		t.Fatal(err)
	}
	gated := gatedModel{tiny.Decoder(m, threads), open}
	e, err := tiny.New(tiny.Config{Name: "untrained", Model: gated, Tokenizer: tok, Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// mixedRequests returns requests with all sampling parameters and prompts of many
// lengths.
func mixedRequests(n int) []engine.Request {
	extras := []string{`"temperature":0`, `"temperature":1`, `"temperature":0.7,"top_p":0.9`, `"top_k":5`, `"min_p":0.05`,
		`"repetition_penalty":1.3`, `"presence_penalty":0.5,"frequency_penalty":0.5`, `"logit_bias":{"101":5}`}
	requests := make([]engine.Request, n)
	for i := range requests {
		prompt := strings.Repeat("in the light ", i%7) + fmt.Sprint("word ", i)
		limits := fmt.Sprintf(`"seed":%d,"max_tokens":%d`, i, 5+i%40)
		requests[i] = enginetest.CompletionRequest(prompt, `"logprobs":3`, limits, extras[i%len(extras)])
	}
	return requests
}

// TestAnswersDoNotDependOnTheBatch sends the same requests alone and all at once,
// with one and with two threads, with prompts read in one step and in several.
// Texts and log probabilities have the same bits.
func TestAnswersDoNotDependOnTheBatch(t *testing.T) {
	t.Parallel()
	requests := mixedRequests(32)
	alone := untrained(t, 1, scheduler.Config{Slots: 1})
	want := make([]engine.Answer, len(requests))
	for i, r := range requests {
		var err error
		if want[i], err = alone.Answer(t.Context(), r, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		threads int
		batch   scheduler.Config
	}{
		"one thread":           {1, scheduler.Config{Slots: 32}},
		"two threads":          {2, scheduler.Config{Slots: 32}},
		"three slots":          {2, scheduler.Config{Slots: 3}},
		"prefill three tokens": {2, scheduler.Config{Slots: 32, Prefill: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan struct{})
			e := gatedUntrained(t, c.threads, c.batch, open)
			var all sync.WaitGroup
			for i, r := range requests {
				all.Go(func() {
					got, err := e.Answer(t.Context(), r, func() {})
					if err != nil || got.Text != want[i].Text || got.Usage != want[i].Usage {
						t.Errorf("%s:\n%q, %v; want as alone\n%q", r.Body, got.Text, err, want[i].Text)
					}
					if string(got.Logprobs) != string(want[i].Logprobs) {
						t.Errorf("%s:\nlogprobs %s; want as alone\n%s", r.Body, got.Logprobs, want[i].Logprobs)
					}
				})
			}
			for s := e.Stats(); s.Running+s.Waiting < int64(len(requests)); s = e.Stats() {
				runtime.Gosched()
			}
			close(open) // no request ends before all have arrived
			all.Wait()
			if s := e.Stats(); s.Batched < 2*s.Steps {
				t.Errorf("%d slots in %d steps, want at least two slots per step", s.Batched, s.Steps)
			}
		})
	}
}

func greedyRequest(prompt []int32, most int) tiny.GenerationRequest {
	greedy := sampling.Params{TopP: 1, Repetition: 1}
	return tiny.GenerationRequest{Prompt: prompt, Max: most, Sampling: greedy, Logprobs: 1}
}

// TestPromptLogprobsMatchAnswerLogprobs checks that a token has the same log
// probability as a part of the prompt and as a part of the answer.
func TestPromptLogprobsMatchAnswerLogprobs(t *testing.T) {
	t.Parallel()
	e := untrained(t, 1, scheduler.Config{})
	q := greedyRequest(e.Tokens("in the word"), 6)
	answer, err := e.Generate(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	prompt := slices.Clone(q.Prompt)
	for _, token := range answer.Tokens {
		for id := range int32(e.Vocab()) {
			if string(e.Piece(id)) == string(token.Bytes) {
				prompt = append(prompt, id)
				break
			}
		}
	}
	scored := greedyRequest(prompt, 0)
	scored.PromptLogprobs = true
	got, err := e.Generate(t.Context(), scored)
	if err != nil || len(got.Prompt) != len(prompt) || got.Text != "" || got.Finish != "length" || !got.Prompt[0].First {
		t.Fatalf("%+v, %v; want no text and %d scored tokens", got, err, len(prompt))
	}
	for i, token := range answer.Tokens {
		p := got.Prompt[len(q.Prompt)+i]
		if p.Logprob != token.Logprob || p.Offset != token.Offset+len("in the word") {
			t.Errorf("token %d: %v at %d in the prompt, %v at %d in the answer",
				i, p.Logprob, p.Offset, token.Logprob, token.Offset)
		}
	}
}
