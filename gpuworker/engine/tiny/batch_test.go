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

// untrained is an engine over a real decoder of a few layers that nobody
// trained: what it says is noise, but always the same noise.
func untrained(t testing.TB, threads int, batch scheduler.Config) *tiny.Engine {
	t.Helper()
	open := make(chan struct{})
	close(open)
	return gatedNoise(t, threads, batch, open)
}

// gated is a model that does nothing until its gate is open.
type gated struct {
	scheduler.Model
	open <-chan struct{}
}

func (g gated) Step(slots []scheduler.Slot, logits [][]float32) error {
	<-g.open
	return g.Model.Step(slots, logits)
}

func gatedNoise(t testing.TB, threads int, batch scheduler.Config, open <-chan struct{}) *tiny.Engine {
	t.Helper()
	text := strings.Repeat("in the beginning was the word and the word was with light and the light was in the prism ", 8)
	tok, err := tokenizer.Train(slices.Values([]string{text}), 290)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{Vocab: tok.Vocab(), Width: 32, Layers: 2, Heads: 2, HeadSize: 16, Hidden: 48, Context: 96, RopeBase: 10000, NormEpsilon: 1e-5}, 7)
	if err != nil {
		t.Fatal(err)
	}
	e, err := tiny.New(tiny.Config{Name: "noise", Model: gated{tiny.Decoder(m, threads), open}, Tokenizer: tok, Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// mixture is requests of every kind of sampling, with prompts of many lengths.
func mixture(n int) []engine.Request {
	extras := []string{`"temperature":0`, `"temperature":1`, `"temperature":0.7,"top_p":0.9`, `"top_k":5`, `"min_p":0.05`,
		`"repetition_penalty":1.3`, `"presence_penalty":0.5,"frequency_penalty":0.5`, `"logit_bias":{"101":5}`}
	requests := make([]engine.Request, n)
	for i := range requests {
		prompt := strings.Repeat("in the light ", i%7) + fmt.Sprint("word ", i)
		requests[i] = enginetest.CompletionRequest(prompt, `"logprobs":3`, fmt.Sprintf(`"seed":%d,"max_tokens":%d`, i, 5+i%40), extras[i%len(extras)])
	}
	return requests
}

// TestAnswersDoNotDependOnCompany asks the same requests alone and all at once,
// on one thread and on more, with prompts read at once and in pieces: text and
// log probabilities are the same to the bit.
func TestAnswersDoNotDependOnCompany(t *testing.T) {
	t.Parallel()
	requests := mixture(32)
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
		"one thread":      {1, scheduler.Config{Slots: 32}},
		"two threads":     {2, scheduler.Config{Slots: 32}},
		"three at once":   {2, scheduler.Config{Slots: 3}},
		"pieces of three": {2, scheduler.Config{Slots: 32, Prefill: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan struct{})
			e := gatedNoise(t, c.threads, c.batch, open)
			var all sync.WaitGroup
			for i, r := range requests {
				all.Go(func() {
					got, err := e.Answer(t.Context(), r, func() {})
					if err != nil || got.Text != want[i].Text || string(got.Logprobs) != string(want[i].Logprobs) || got.Usage != want[i].Usage {
						t.Errorf("%s:\n%q, %v; alone\n%q", r.Body, got.Text, err, want[i].Text)
					}
				})
			}
			for s := e.Stats(); s.Running+s.Waiting < int64(len(requests)); s = e.Stats() {
				runtime.Gosched()
			}
			close(open) // nobody is done before all are there
			all.Wait()
			if s := e.Stats(); s.Batched < 2*s.Steps {
				t.Errorf("%d slots in %d steps: too little company", s.Batched, s.Steps)
			}
		})
	}
}

func question(e *tiny.Engine, prompt []int32, most int) tiny.GenerationRequest {
	return tiny.GenerationRequest{Prompt: prompt, Max: most, Sampling: sampling.Params{TopP: 1, Repetition: 1}, Logprobs: 1}
}

// TestAPromptIsScoredAsItWouldBeAnswered: the log probability that a token
// has as a part of the prompt is the one that it had as a part of the answer.
func TestAPromptIsScoredAsItWouldBeAnswered(t *testing.T) {
	t.Parallel()
	e := untrained(t, 1, scheduler.Config{})
	said, err := e.Generate(t.Context(), question(e, e.Tokens("in the word"), 6))
	if err != nil {
		t.Fatal(err)
	}
	q := question(e, e.Tokens("in the word"), 6)
	prompt := slices.Clone(q.Prompt)
	for _, token := range said.Tokens {
		for id := range int32(e.Vocab()) {
			if string(e.Piece(id)) == string(token.Bytes) {
				prompt = append(prompt, id)
				break
			}
		}
	}
	scored := question(e, prompt, 0)
	scored.PromptLogprobs = true
	got, err := e.Generate(t.Context(), scored)
	if err != nil || len(got.Prompt) != len(prompt) || got.Text != "" || got.Finish != "length" || !got.Prompt[0].First {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, token := range said.Tokens {
		if p := got.Prompt[len(q.Prompt)+i]; p.Logprob != token.Logprob || p.Offset != token.Offset+len("in the word") {
			t.Errorf("token %d: %v at %d as a prompt, %v at %d as an answer", i, p.Logprob, p.Offset, token.Logprob, token.Offset)
		}
	}
}
