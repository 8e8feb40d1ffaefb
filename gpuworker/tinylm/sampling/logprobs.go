package sampling

import "rollout/gpuworker/tinylm/kernel"

// TokenLogprob is a token with its log probability.
type TokenLogprob struct {
	ID      int32
	Logprob float32 // natural logarithm; at least MinLogprob
}

// MinLogprob is the lowest log probability that is reported, as in vLLM, because
// JSON cannot represent -∞.
const MinLogprob = -9999

// Logprobs returns the log probability of the chosen token, and the top likeliest
// tokens, likeliest first. The distribution is the model's own: the softmax of
// the raw logits, before any sampling parameter (vLLM's raw_logprobs). top is at
// most MaxTop.
func Logprobs(logits []float32, chosen int32, top int) (float32, []TokenLogprob) {
	most := logits[greatest(logits)]
	weights := make([]float32, len(logits))
	kernel.Best().Exps(weights, logits, most)
	sum := 0.0
	for _, w := range weights {
		sum += float64(w)
	}
	norm := most + float32(kernel.Log64(sum))
	of := func(id int32) float32 { return max(logits[id]-norm, MinLogprob) }
	if top <= 0 {
		return of(chosen), nil
	}
	best := make([]TokenLogprob, 0, min(top, len(logits)))
	for i := range logits { // insertion sort, because top is small
		id := int32(i)
		if len(best) == cap(best) && logits[id] <= logits[best[len(best)-1].ID] {
			continue
		}
		if len(best) < cap(best) {
			best = append(best, TokenLogprob{})
		}
		at := len(best) - 1
		for ; at > 0 && logits[best[at-1].ID] < logits[id]; at-- {
			best[at] = best[at-1]
		}
		best[at] = TokenLogprob{ID: id, Logprob: of(id)}
	}
	return of(chosen), best
}
