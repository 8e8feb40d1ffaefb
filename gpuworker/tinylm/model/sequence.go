package model

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Sequence is a row of training data: tokens, and for each token the target that
// should follow it.
type Sequence struct {
	Tokens []int32
	// Targets has one target for each token. A negative target is not counted.
	// Rewards ignores Targets.
	Targets []int32
	// Starts lists the positions at which packed documents begin, ascending.
	// Each document has positions from 0 and attends only to itself. The first
	// document begins at 0; listing 0 is optional.
	Starts []int32
}

// check returns an Invalid fault if the sequence is wrong.
func (q Sequence) check(c Config, targets bool) error {
	n := len(q.Tokens)
	if n == 0 {
		return fault.New(fault.Invalid, "it has no tokens")
	}
	if err := checkTokens(q.Tokens, c.Vocab); err != nil {
		return err
	}
	if targets {
		if len(q.Targets) != n {
			return fault.New(fault.Invalid, "it has %d tokens but %d targets", n, len(q.Targets))
		}
		for i, t := range q.Targets {
			if int(t) >= c.Vocab {
				return fault.New(fault.Invalid, "target %d is %d: the vocabulary has ids 0 to %d", i, t, c.Vocab-1)
			}
		}
	}
	last := int32(-1)
	for i, s := range q.Starts {
		if s <= last || int(s) >= n {
			return fault.New(fault.Invalid, "start %d is %d: starts must ascend and lie before the end, %d", i, s, n)
		}
		last = s
	}
	for d := range q.documents {
		if d.len() > c.Context {
			return fault.New(fault.Invalid, "the document at %d has %d tokens: the context is %d", d.start, d.len(), c.Context)
		}
	}
	if kept := q.attention(c) * c.Layers; kept > maxAttention {
		return fault.New(fault.Invalid, "training on it would need %d GiB for attention: shorten its documents", kept>>28)
	}
	return nil
}

// maxAttention is the maximum number of attention probabilities of a sequence,
// over all layers: 4 GiB.
const maxAttention = 1 << 30

// attention returns the number of floats of one layer's attention probabilities.
func (q Sequence) attention(c Config) int {
	n := 0
	for d := range q.documents {
		n += c.Heads * d.len() * kernel.Padded(d.len())
	}
	return n
}

// span is a half-open range of positions or columns.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// documents yields the span of each document.
func (q Sequence) documents(yield func(span) bool) {
	start := 0
	for _, s := range q.Starts {
		if int(s) > start {
			if !yield(span{start, int(s)}) {
				return
			}
			start = int(s)
		}
	}
	yield(span{start, len(q.Tokens)})
}

// counted returns the number of counted targets.
func (q Sequence) counted() int {
	n := 0
	for _, t := range q.Targets {
		if t >= 0 {
			n++
		}
	}
	return n
}
