// Package sampling draws a token from a language model's logits.
//
// The order of operations is fixed and is that of llama.cpp's usual chain with
// vLLM's penalties:
//
//	logit bias → repetition, presence and frequency penalty → (temperature 0: the
//	greatest logit) → temperature → top_k → top_p → min_p → draw
//
// What is drawn is a pure function of logits, tokens seen, parameters, seed and
// the number of tokens drawn before: the same bits on any machine, because the
// generator, exp and log are our own and no product is fused with a sum.
// Logits are never changed. The package knows no text, no model and no time.
package sampling

import (
	"fmt"
	"math"

	"rollout/shared/fault"
)

// Bounds of parameters, as vLLM and OpenAI have them.
const (
	maxTemperature = 100
	maxPenalty     = 2   // presence and frequency, in both directions
	maxRepetition  = 100 // vLLM has no upper bound; this one keeps logits finite
	maxBias        = 100
	MaxBiases      = 1024 // of logit_bias
	MaxTop         = 20   // alternatives that log probabilities are given of
)

// Params are one request's. Zero is not neutral everywhere: begin with
// Default.
type Params struct {
	Temperature float32 // 0 is greedy: the greatest logit, of equal ones the lowest id
	TopK        int     // the k likeliest; 0 and -1 are all
	TopP        float32 // (0, 1]: the likeliest whose probabilities make up so much, after top_k
	MinP        float32 // [0, 1]: at least so much of the likeliest one's probability
	Repetition  float32 // > 0: logits of tokens in prompt or answer are divided by it if positive, else multiplied
	Presence    float32 // [-2, 2]: taken from the logits of the answer's tokens
	Frequency   float32 // [-2, 2]: the same, times how often they occur
	Bias        map[int32]float32
}

// Default draws from the model's own distribution.
func Default() Params { return Params{Temperature: 1, TopP: 1, Repetition: 1} }

// Check returns what is wrong with the parameters of a model of so many
// tokens: Invalid, class refused, naming the parameter as requests do.
func (p Params) Check(vocab int) error {
	switch {
	case !within(p.Temperature, 0, maxTemperature):
		return NewParamError("temperature", "must be from 0 to %d, got %v: 0 takes the likeliest token, 1 draws as the model says", maxTemperature, p.Temperature)
	case p.TopK < -1:
		return NewParamError("top_k", "must be -1 (off) or at least 1, got %d", p.TopK)
	case !within(p.TopP, 0, 1) || p.TopP == 0:
		return NewParamError("top_p", "must be above 0 and at most 1, got %v: 1 is off", p.TopP)
	case !within(p.MinP, 0, 1):
		return NewParamError("min_p", "must be from 0 to 1, got %v: 0 is off", p.MinP)
	case !within(p.Repetition, 0, maxRepetition) || p.Repetition < 1.0/maxRepetition:
		return NewParamError("repetition_penalty", "must be above 0 (from %v to %d), got %v: 1 is off", 1.0/maxRepetition, maxRepetition, p.Repetition)
	case !within(p.Presence, -maxPenalty, maxPenalty):
		return NewParamError("presence_penalty", "must be from -%d to %d, got %v: 0 is off", maxPenalty, maxPenalty, p.Presence)
	case !within(p.Frequency, -maxPenalty, maxPenalty):
		return NewParamError("frequency_penalty", "must be from -%d to %d, got %v: 0 is off", maxPenalty, maxPenalty, p.Frequency)
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

// within is false for NaN.
func within(v, low, high float32) bool {
	return float64(v) >= float64(low) && float64(v) <= float64(high) && !math.IsInf(float64(v), 0)
}

// ParamError is in the chain of a fault about one parameter of a request.
type ParamError struct {
	Name   string // as the request spells it: "top_p"
	Reason string
}

func (p *ParamError) Error() string { return p.Name + " " + p.Reason }

// NewParamError is the fault of a request whose parameter is wrong: Invalid, class
// refused.
func NewParamError(name, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: &ParamError{Name: name, Reason: fmt.Sprintf(format, args...)}}
}
