package worker

import "math"

// tokenEstimate estimates how many tokens a request takes, by what earlier ones took.
type tokenEstimate struct {
	perByte float64 // tokens of a prompt, for each of its bytes
	answer  float64 // tokens of an answer without a bound
}

// Estimates before the first answer, and the weight of each answer in the moving
// averages.
const (
	firstPerByte   = 0.3
	firstAnswer    = 512
	estimateWeight = 0.05
	// answerMargin is how much longer than usual an answer without a bound may be.
	answerMargin = 1.5
)

func newTokenEstimate() tokenEstimate {
	return tokenEstimate{perByte: firstPerByte, answer: firstAnswer}
}

// tokens returns the tokens that the request counts as: its prompt, and the most that
// its answer may have.
func (e tokenEstimate) tokens(c Cost) int64 {
	prompt, answer := e.parts(c)
	return 1 + int64(math.Ceil(prompt+answer))
}

// parts returns the tokens of the prompt, and the most of the answer.
func (e tokenEstimate) parts(c Cost) (prompt, answer float64) {
	answer = float64(c.MaxTokens)
	if c.MaxTokens == 0 {
		answer = answerMargin * e.answer
	}
	return e.perByte * float64(c.PromptBytes), answer
}

// learn adds what a request took.
func (e *tokenEstimate) learn(c Cost, prompt, completion int64) {
	if c.PromptBytes > 0 && prompt > 0 {
		e.perByte += estimateWeight * (float64(prompt)/float64(c.PromptBytes) - e.perByte)
	}
	e.answer += estimateWeight * (float64(completion) - e.answer)
}
