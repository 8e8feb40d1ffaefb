// Package echotest is a language model with predictable answers, for tests of the
// tiny engine and of its HTTP server: it repeats its prompt. Engine starts an
// engine with such a model. Only tests import it.
package echotest

import (
	"errors"
	"math"
	"testing"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/tokenizer"
)

// EchoModel is a model that repeats its prompt, then makes the letters a to h
// equally likely for eight tokens, and then ends the text. It regards the first
// tokens that a sequence reads as the prompt, so prompts must be read in one
// step.
type EchoModel struct {
	Tokens, Positions int   // sizes of vocabulary and context
	Echo              int   // maximum number of the prompt's tokens to repeat
	End               int32 // the token that ends a text; -1: the text never ends
	NaNToken          int32 // a token of the prompt that makes the logits NaN; -1: none
}

// randomTokens is the number of random letters after the repeated prompt.
const randomTokens = 8

type echoSequence struct {
	tokens []int32
	prompt int
}

// Truncate implements scheduler.Sequence.
func (s *echoSequence) Truncate(n int) { s.tokens, s.prompt = s.tokens[:n], 0 }

// Vocab implements scheduler.Model.
func (p *EchoModel) Vocab() int { return p.Tokens }

// Context implements scheduler.Model.
func (p *EchoModel) Context() int { return p.Positions }

// NewSequence implements scheduler.Model.
func (p *EchoModel) NewSequence() scheduler.Sequence { return &echoSequence{} }

// AllLogits implements scheduler.Model. It always returns an error.
func (p *EchoModel) AllLogits([]int32, func(int, []float32)) error {
	return errors.New("the echo model does not support log probabilities of prompts")
}

// Step implements scheduler.Model.
func (p *EchoModel) Step(slots []scheduler.Slot, logits [][]float32) error {
	for i, slot := range slots {
		s := slot.Sequence.(*echoSequence)
		if s.prompt == 0 {
			s.prompt = len(slot.Tokens)
		}
		s.tokens = append(s.tokens, slot.Tokens...)
		p.setLogits(s, logits[i])
	}
	return nil
}

// setLogits sets the logits after a sequence's last token.
func (p *EchoModel) setLogits(s *echoSequence, logits []float32) {
	clear(logits)
	generated, repeat := len(s.tokens)-s.prompt, min(s.prompt, p.Echo)
	if s.tokens[0] == p.End { // an empty prompt
		repeat = 0
	}
	for _, id := range s.tokens[:s.prompt] {
		if id == p.NaNToken {
			logits[0] = float32(math.NaN())
		}
	}
	switch {
	case generated < repeat:
		logits[s.tokens[generated]] += 60
	case generated < repeat+randomTokens || p.End < 0:
		for c := 'a'; c <= 'h'; c++ {
			logits[c] += 60
		}
	default:
		logits[p.End] += 60
	}
}

// ModelName is the name of the model that Engine serves.
const ModelName = "echo"

// Engine returns an engine that serves p as ModelName, and closes it at the end of
// the test. Its tokenizer is that of Bytes. Completions without max_tokens are
// practically unlimited.
func Engine(t testing.TB, p *EchoModel, batch scheduler.Config) *tiny.Engine {
	t.Helper()
	tok := Bytes(t)
	p.Tokens = tok.Vocab()
	batch.Prefill = 1 << 30 // the model needs to read prompts in one step
	e, err := tiny.New(tiny.Config{
		Name: ModelName, Model: p, Tokenizer: tok, Batch: batch, CompletionTokens: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// Bytes returns a tokenizer with only the 256 bytes and the special tokens.
func Bytes(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// LongEcho returns a model that repeats up to 200 tokens of the prompt, with a
// context of 4 million tokens.
func LongEcho(t testing.TB) *EchoModel {
	return &EchoModel{Positions: 1 << 22, Echo: 200, End: Bytes(t).EndOfText(), NaNToken: -1}
}

// Endless returns a model that never ends a text.
func Endless() *EchoModel { return &EchoModel{Positions: 1 << 30, End: -1, NaNToken: -1} }
