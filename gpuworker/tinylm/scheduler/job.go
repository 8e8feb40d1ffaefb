package scheduler

import (
	"context"
	"time"
)

// Job is one sequence to generate tokens for.
type Job struct {
	// Prompt has at least one token, and fewer than the model's context.
	Prompt []int32
	// NextToken gets the logits after all tokens so far. It returns the next
	// token, or NoToken, and whether generation continues. The scheduler's
	// goroutine calls it, and all sequences wait meanwhile, so it must not block.
	// The logits are valid until it returns.
	NextToken func(logits []float32) (token int32, more bool, err error)
	// OnPromptLogits is optional. It is called before NextToken, once for each
	// token of the prompt, with the logits after that token. The rules of
	// NextToken apply.
	OnPromptLogits func(at int, logits []float32) error
}

// NoToken is the result of a NextToken that returns no token; the job ends.
const NoToken int32 = -1

// Times are the times of a job's events.
type Times struct {
	Queued  time.Time // call of Run
	Started time.Time // joined the batch; zero if it never did
	First   time.Time // first token; zero if there was none
	Last    time.Time // last token; zero if there was none
	Ended   time.Time
}

// activeJob is the state of a job in the scheduler.
type activeJob struct {
	*Job
	ctx   context.Context
	times Times
	seq   Sequence
	read  int        // tokens of the prompt that the model has read
	next  int32      // the token that the model reads next, after the prompt
	size  int        // tokens in the sequence
	over  chan error // receives the job's result, once
}

// prefilling reports whether the model has yet to read a part of the prompt.
func (t *activeJob) prefilling() bool { return t.read < len(t.Prompt) }
