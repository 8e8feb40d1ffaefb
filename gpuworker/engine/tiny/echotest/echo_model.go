// Package parrottest is a language model whose answers tests can foresee: a
// parrot. Only tests import it.
package echotest

import (
	"errors"
	"math"
	"testing"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/tokenizer"
)

// EchoModel is a model that repeats its prompt, up to a number of tokens, babbles
// eight letters at the dice's choice, and ends. It takes what its sequence reads
// first for the prompt, so that prompts must be read in one step.
type EchoModel struct {
	Tokens, Positions int   // sizes of vocabulary and context
	Echo              int   // tokens of the prompt that it repeats at most
	End               int32 // the token that ends a text; -1 for a parrot that babbles on
	NaNToken          int32 // a token of the prompt that makes its logits NaN; -1 for none
}

const babbled = 8

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

// AllLogits implements scheduler.Model: it fails.
func (p *EchoModel) AllLogits([]int32, func(int, []float32)) error {
	return errors.New("a parrot scores no prompts")
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
	said, repeat := len(s.tokens)-s.prompt, min(s.prompt, p.Echo)
	if s.tokens[0] == p.End { // an empty prompt
		repeat = 0
	}
	for _, id := range s.tokens[:s.prompt] {
		if id == p.NaNToken {
			logits[0] = float32(math.NaN())
		}
	}
	switch {
	case said < repeat:
		logits[s.tokens[said]] += 60
	case said < repeat+babbled || p.End < 0:
		for c := 'a'; c <= 'h'; c++ {
			logits[c] += 60
		}
	default:
		logits[p.End] += 60
	}
}

// Engine is an engine over the parrot, with a tokenizer of bytes alone, that
// ends with the test. Completions that do not say how long they may be are not
// bounded.
func Engine(t testing.TB, p *EchoModel, batch scheduler.Config) *tiny.Engine {
	t.Helper()
	tok := Bytes(t)
	p.Tokens = tok.Vocab()
	batch.Prefill = 1 << 30 // prompts are read in one step
	e, err := tiny.New(tiny.Config{Name: "parrot", Model: p, Tokenizer: tok, Batch: batch, CompletionTokens: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// Bytes is a tokenizer of the 256 bytes and the special tokens.
func Bytes(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// LongEcho repeats 200 tokens of prompts of up to 4 million.
func LongEcho(t testing.TB) *EchoModel {
	return &EchoModel{Positions: 1 << 22, Echo: 200, End: Bytes(t).EndOfText(), NaNToken: -1}
}

// Endless never ends.
func Endless() *EchoModel { return &EchoModel{Positions: 1 << 30, End: -1, NaNToken: -1} }
