package sampling

import (
	"fmt"
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Sampler draws the tokens of one answer, one after the other. It is not safe for
// concurrent use.
type Sampler struct {
	p      Params
	rng    RNG
	seen   []bool    // tokens of the prompt and the answer; nil without a repetition penalty
	counts []int32   // occurrences in the answer; nil without presence and frequency penalty
	logits []float32 // a copy, with bias and penalties
	weight []float32 // unnormalised probability of each token; the likeliest has 1
	heap   []int32   // ids
	kept   []float64 // cumulative weights of the tokens to draw from
}

// New returns a sampler for a model of vocab tokens, after the given prompt. The
// parameters must have passed Check.
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

// Next draws the next token. It never draws an excluded id, as if its logit were
// -∞; if all ids are excluded, the exclusion has no effect. Logits that are not
// finite are a Corrupt fault of class engine, since they mean that the weights or
// the arithmetic are broken.
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

// CheckFinite returns a Corrupt fault of class engine if a logit is NaN or
// infinite.
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

// penalise applies bias and penalties to the copy of the logits.
func (s *Sampler) penalise() {
	for id, b := range s.p.Bias { // each id occurs once, so the order does not matter
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

// greatest returns the id of the greatest logit; of equal ones, the lowest id.
func greatest(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// draw draws a token with temperature, top_k, top_p and min_p. best is the id of
// the greatest logit.
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

// drawInOrder draws an id in proportion to the weights. u, in [0, 1), is the
// random number. It adds the weights in the order of ids, without sorting them.
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

// drawLikeliest draws from the tokens that top_k, top_p and min_p leave, likeliest
// first. It sorts only these.
func (s *Sampler) drawLikeliest(u float64, top float32) int32 {
	k := len(s.logits)
	if s.p.TopK > 0 {
		k = min(k, s.p.TopK)
	}
	all, least := 0.0, float64(s.p.MinP) // top_p is a share of all; the likeliest token has weight 1
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
		s.kept = append(s.kept, before) // one cumulative weight for each popped id
	}
	at := float64(u * s.kept[len(s.kept)-1])
	for i, sum := range s.kept {
		if sum > at {
			return h.popped(i)
		}
	}
	return h.popped(len(s.kept) - 1)
}

// A token whose logit is more than far temperatures below the greatest has a
// weight below faint, and is rarely drawn.
const (
	far   = 6
	faint = 0.0026 // slightly above e⁻⁶
)

// candidates returns a heap of the tokens that may be drawn. It omits tokens far
// below the likeliest if the parameters certainly exclude all of these, because
// making a heap of the whole vocabulary dominates the cost of a draw.
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
	suffice := float64(s.p.MinP) > faint // whether the tokens in h are enough
	if k < len(s.logits) {
		suffice = len(h.ids) >= k
	} else if !suffice {
		const slack = 1 + 1e-6 // drawLikeliest adds in another order, with other rounding
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
