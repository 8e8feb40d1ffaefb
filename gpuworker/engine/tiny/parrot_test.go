package tiny_test

import (
	"errors"
	"math"
	"sync/atomic"

	"rollout/gpuworker/engine/tiny/scheduler"
)

// parrot is a model that repeats its prompt, up to a number of tokens, babbles
// eight letters at the dice's choice, and ends. It takes what its sequence reads
// first for the prompt, so that prompts must be read in one step.
type parrot struct {
	vocab, context int
	echo           int
	end            int32 // the token that ends a text; -1 for a parrot that babbles on
	sick           int32 // a token of the prompt that makes its logits NaN; -1 for none
	steps          atomic.Int64
}

const babbled = 8

type parroted struct {
	tokens []int32
	prompt int
}

func (s *parroted) Truncate(n int) { s.tokens, s.prompt = s.tokens[:n], 0 }

func (p *parrot) Vocab() int                      { return p.vocab }
func (p *parrot) Context() int                    { return p.context }
func (p *parrot) NewSequence() scheduler.Sequence { return &parroted{} }

func (p *parrot) All([]int32, func(int, []float32)) error {
	return errors.New("a parrot scores no prompts")
}

func (p *parrot) Step(slots []scheduler.Slot, logits [][]float32) error {
	p.steps.Add(1)
	for i, slot := range slots {
		s := slot.Sequence.(*parroted)
		if s.prompt == 0 {
			s.prompt = len(slot.Tokens)
		}
		s.tokens = append(s.tokens, slot.Tokens...)
		p.say(s, logits[i])
	}
	return nil
}

// say sets the logits after a sequence's last token.
func (p *parrot) say(s *parroted, logits []float32) {
	clear(logits)
	said, repeat := len(s.tokens)-s.prompt, min(s.prompt, p.echo)
	if s.tokens[0] == p.end { // an empty prompt
		repeat = 0
	}
	for _, id := range s.tokens[:s.prompt] {
		if id == p.sick {
			logits[0] = float32(math.NaN())
		}
	}
	switch {
	case said < repeat:
		logits[s.tokens[said]] += 60
	case said < repeat+babbled || p.end < 0:
		for c := 'a'; c <= 'h'; c++ {
			logits[c] += 60
		}
	default:
		logits[p.end] += 60
	}
}
