package sampling

import (
	"fmt"
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Sampler draws the tokens of one answer, one after the other. Not for
// concurrent use.
type Sampler struct {
	p      Params
	rng    RNG
	seen   []bool  // tokens of prompt and answer; nil if no penalty asks
	counts []int32 // of the answer's tokens; nil likewise
	logits []float32
	weight []float32 // of each token in the draw; the likeliest's is 1
	heap   []int32   // ids
	kept   []float64
}

// New returns a sampler of a model of so many tokens, whose prompt was as
// given. The parameters must have passed Check.
func New(p Params, seed uint64, vocab int, prompt []int32) *Sampler {
	s := &Sampler{p: p, rng: NewRNG(seed), logits: make([]float32, vocab), weight: make([]float32, vocab)}
	if p.Repetition != 1 {
		s.seen = make([]bool, vocab)
		for _, id := range prompt {
			if id >= 0 && int(id) < vocab {
				s.seen[id] = true
			}
		}
	}
	if p.Presence != 0 || p.Frequency != 0 {
		s.counts = make([]int32, vocab)
	}
	return s
}

// Next draws the next token. Logits that are not finite are Corrupt, class
// engine: weights or arithmetic are broken. Excluded ids are never drawn, as if
// their logits were -∞; if all are, it is as if none was.
func (s *Sampler) Next(logits []float32, excluded []int32) (int32, error) {
	if err := CheckFinite(logits); err != nil {
		return 0, err
	}
	s.logits = append(s.logits[:0], logits...)
	s.penalise()
	if len(excluded) < len(logits) {
		for _, id := range excluded {
			s.logits[id] = float32(math.Inf(-1))
		}
	}
	id := greatest(s.logits)
	if s.p.Temperature > 0 {
		id = s.draw(id)
	}
	if s.seen != nil {
		s.seen[id] = true
	}
	if s.counts != nil {
		s.counts[id]++
	}
	return id, nil
}

// CheckFinite refuses, as Corrupt, logits that are NaN or infinite.
func CheckFinite(logits []float32) error {
	if kernel.Best().Finite(logits) {
		return nil
	}
	for i, v := range logits {
		if v-v != 0 { // NaN, +∞ and -∞
			return &fault.Error{Kind: fault.Corrupt, Class: fault.Engine,
				Op: fmt.Sprintf("the model's logit of token %d is %v", i, v), Remedy: "the weights are damaged: use others"}
		}
	}
	return nil
}

// penalise changes the copy of the logits by bias and penalties.
func (s *Sampler) penalise() {
	for id, b := range s.p.Bias { // each id once: the order does not matter
		s.logits[id] += b
	}
	for id, seen := range s.seen {
		switch {
		case !seen:
		case s.logits[id] > 0:
			s.logits[id] /= s.p.Repetition
		default:
			s.logits[id] *= s.p.Repetition
		}
	}
	for id, n := range s.counts {
		if n > 0 {
			s.logits[id] -= float32(s.p.Frequency * float32(n))
			s.logits[id] -= s.p.Presence
		}
	}
}

// greatest is the lowest id of those with the greatest logit.
func greatest(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// draw draws from the logits, of which the greatest is given.
func (s *Sampler) draw(best int32) int32 {
	top := s.logits[best]
	for i, v := range s.logits {
		s.weight[i] = (v - top) / s.p.Temperature
	}
	kernel.Best().Exps(s.weight, s.weight, 0)
	u := s.rng.Float64()
	if s.p.TopK <= 0 && s.p.TopP == 1 && s.p.MinP == 0 {
		return drawInOrder(s.weight, u)
	}
	return s.drawLikeliest(u, top)
}

// drawInOrder draws from weights in the order of ids, without sorting them.
func drawInOrder(weights []float32, u float64) int32 {
	sum, last := 0.0, 0
	for i, w := range weights {
		sum += float64(w)
		if w > 0 {
			last = i
		}
	}
	at := float64(u * sum)
	sum = 0
	for i, w := range weights {
		if sum += float64(w); sum > at {
			return int32(i)
		}
	}
	return int32(last)
}

// drawLikeliest draws from those that top_k, top_p and min_p leave, likeliest
// first. Only as many as are left are sorted.
func (s *Sampler) drawLikeliest(u float64, top float32) int32 {
	k := len(s.logits)
	if s.p.TopK > 0 {
		k = min(k, s.p.TopK)
	}
	all, least := 0.0, float64(s.p.MinP) // what top_p is a share of; the likeliest weighs 1
	for _, w := range s.weight {
		all += float64(w)
	}
	h := s.candidates(top, k, all)
	n := len(h.ids)
	if k < len(s.logits) {
		all = 0
		for range k {
			all += float64(s.weight[h.pop()])
		}
		h.restore()
	}
	enough := float64(float64(s.p.TopP) * all)
	s.kept = s.kept[:0]
	before := 0.0
	for len(s.kept) < min(k, n) && (len(s.kept) == 0 || before < enough) {
		w := float64(s.weight[h.pop()])
		if len(s.kept) > 0 && (w < least || w == 0) {
			break
		}
		before += w
		s.kept = append(s.kept, before) // sums, one for each popped id
	}
	at := float64(u * s.kept[len(s.kept)-1])
	for i, sum := range s.kept {
		if sum > at {
			return h.popped(i)
		}
	}
	return h.popped(len(s.kept) - 1)
}

// far is how far below the greatest logit, in temperatures, tokens are mostly
// not drawn from any more: they weigh less than faint.
const (
	far   = 6
	faint = 0.0026 // e⁻⁶ and a little
)

// candidates orders the tokens that are drawn from. Those that are far from the
// likeliest one are left out if it is clear that the parameters leave none of
// them: ordering a whole vocabulary takes longer than all the rest.
func (s *Sampler) candidates(top float32, k int, all float64) likeliest {
	cut := top - float32(far*s.p.Temperature)
	h := likeliest{logits: s.logits, ids: s.heap[:0]}
	sum := 0.0
	for id, v := range s.logits {
		if v >= cut {
			h.ids = append(h.ids, int32(id))
			sum += float64(s.weight[id])
		}
	}
	suffice := float64(s.p.MinP) > faint
	if k < len(s.logits) {
		suffice = len(h.ids) >= k
	} else if !suffice {
		const slack = 1 + 1e-6 // the sum is rounded in another order
		suffice = sum > float64(float64(s.p.TopP)*all)*slack
	}
	if !suffice {
		h.ids = h.ids[:0]
		for id := range s.logits {
			h.ids = append(h.ids, int32(id))
		}
	}
	s.heap = h.ids
	h.order()
	return h
}
