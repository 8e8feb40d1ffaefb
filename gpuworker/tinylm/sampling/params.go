// Package sampling draws tokens from a language model's logits. It also computes
// log probabilities and checks sampling parameters.
//
// The order of operations is that of llama.cpp's default chain, with vLLM's
// penalties:
//
//	logit bias → repetition, presence and frequency penalty → (temperature 0: the
//	greatest logit) → temperature → top_k → top_p → min_p → draw
//
// The result depends only on the logits, the tokens seen, the parameters, the
// seed and the number of tokens drawn before. It is the same on every machine,
// because the random generator, exp and log are implemented in this module and
// products are not fused with sums. The package never changes the caller's
// logits, and knows nothing of text, models or time.
package sampling

import (
	"fmt"
	"math"

	"rollout/shared/fault"
)

// Bounds of parameters, as in vLLM and OpenAI's API.
const (
	maxTemperature = 100
	maxPenalty     = 2   // presence and frequency penalty; the minimum is -maxPenalty
	maxRepetition  = 100 // vLLM has no upper bound; this one keeps logits finite
	maxBias        = 100
	MaxBiases      = 1024 // maximum number of tokens in logit_bias
	MaxTop         = 20   // maximum number of alternatives with log probabilities
)

// Params are the sampling parameters of one request. The zero value is not
// valid; start from Default.
type Params struct {
	// Temperature divides the logits. 0 is greedy: it takes the greatest logit, of
	// equal ones the lowest id.
	Temperature float32
	// TopK keeps the k likeliest tokens. 0 and -1 keep all.
	TopK int
	// TopP, in (0, 1], keeps the likeliest tokens that together have this share of
	// the probability that TopK left.
	TopP float32
	// MinP, in [0, 1], keeps tokens with at least this share of the likeliest
	// token's probability.
	MinP float32
	// Repetition, above 0, divides positive logits of tokens in the prompt or the
	// answer, and multiplies negative ones.
	Repetition float32
	// Presence, in [-2, 2], is subtracted from the logits of the answer's tokens.
	Presence float32
	// Frequency, in [-2, 2], is subtracted once for each occurrence in the answer.
	Frequency float32
	// Bias is added to the logits of the given tokens.
	Bias map[int32]float32
}

// Default returns the parameters that draw from the model's own distribution.
func Default() Params { return Params{Temperature: 1, TopP: 1, Repetition: 1} }

// Check returns a fault if a parameter is wrong for a model of vocab tokens, or
// nil. The fault is Invalid, of class refused, and has a ParamError in its chain.
func (p Params) Check(vocab int) error {
	switch {
	case !within(p.Temperature, 0, maxTemperature):
		return NewParamError("temperature",
			"must be from 0 to %d, got %v: 0 takes the likeliest token, 1 draws as the model says",
			maxTemperature, p.Temperature)
	case p.TopK < -1:
		return NewParamError("top_k", "must be -1 (off) or at least 1, got %d", p.TopK)
	case !within(p.TopP, 0, 1) || p.TopP == 0:
		return NewParamError("top_p", "must be above 0 and at most 1, got %v: 1 is off", p.TopP)
	case !within(p.MinP, 0, 1):
		return NewParamError("min_p", "must be from 0 to 1, got %v: 0 is off", p.MinP)
	case !within(p.Repetition, 0, maxRepetition) || p.Repetition < 1.0/maxRepetition:
		return NewParamError("repetition_penalty", "must be above 0 (from %v to %d), got %v: 1 is off",
			1.0/maxRepetition, maxRepetition, p.Repetition)
	case !within(p.Presence, -maxPenalty, maxPenalty):
		return NewParamError("presence_penalty", "must be from -%d to %d, got %v: 0 is off",
			maxPenalty, maxPenalty, p.Presence)
	case !within(p.Frequency, -maxPenalty, maxPenalty):
		return NewParamError("frequency_penalty", "must be from -%d to %d, got %v: 0 is off",
			maxPenalty, maxPenalty, p.Frequency)
	case len(p.Bias) > MaxBiases:
		return NewParamError("logit_bias", "must name at most %d tokens, names %d", MaxBiases, len(p.Bias))
	}
	for id, b := range p.Bias {
		if id < 0 || int(id) >= vocab {
			return NewParamError("logit_bias", "names the token %d, the model has 0 to %d", id, vocab-1)
		}
		if !within(b, -maxBias, maxBias) {
			return NewParamError("logit_bias", "of the token %d must be from -%d to %d, got %v", id, maxBias, maxBias, b)
		}
	}
	return nil
}

// within reports whether v is finite and from low to high. It is false for NaN.
func within(v, low, high float32) bool {
	return float64(v) >= float64(low) && float64(v) <= float64(high) && !math.IsInf(float64(v), 0)
}

// ParamError says what is wrong with one parameter of a request. It is in the
// chain of the fault that NewParamError returns.
type ParamError struct {
	Name   string // as the request spells it: "top_p"
	Reason string
}

func (p *ParamError) Error() string { return p.Name + " " + p.Reason }

// NewParamError returns the fault of a request with a wrong parameter: Invalid,
// of class refused.
func NewParamError(name, format string, args ...any) error {
	reason := &ParamError{Name: name, Reason: fmt.Sprintf(format, args...)}
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: reason}
}
