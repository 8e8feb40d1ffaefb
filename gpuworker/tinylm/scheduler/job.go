package scheduler

import (
	"context"
	"time"
)

// Job is one sequence to be continued.
type Job struct {
	// Prompt has at least one token, and fewer than the model's context.
	Prompt []int32
	// NextToken is handed the logits after all tokens so far. It returns the next
	// token, or None, and whether the job goes on with it. It is called on the
	// scheduler's goroutine, and stops everybody while it runs: it must not
	// block. The logits are valid until it returns.
	NextToken func(logits []float32) (token int32, more bool, err error)
	// OnPromptLogits, if set, is called first, with the logits after each token of the
	// prompt, under the same rules.
	OnPromptLogits func(at int, logits []float32) error
}

// NoToken is no token.
const NoToken int32 = -1

// Times tell when a job got where.
type Times struct {
	Queued  time.Time // Run was called
	Started time.Time // it has a place in the batch; zero if it never had
	First   time.Time // its first token; zero if none came
	Last    time.Time // its last token
	Ended   time.Time
}

// activeJob is a job in the scheduler.
type activeJob struct {
	*Job
	ctx   context.Context
	times Times
	seq   Sequence
	read  int        // tokens of the prompt that the model has read
	next  int32      // the token that it reads next, once the prompt is read
	size  int        // tokens in the sequence
	over  chan error // gets the one end of it
}

func (t *activeJob) prefilling() bool { return t.read < len(t.Prompt) }
