package grade

import (
	"context"
	"encoding/json"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// Case is an answer to grade.
type Case struct {
	// ID names the answer. It is the same whenever the same answer is graded again.
	ID string
	// Prompt is the prompt (a JSON string) or the messages (a JSON array) that were
	// answered.
	Prompt json.RawMessage
	Answer string
	// Expected is the row's own expected value; nil if it has none.
	Expected json.RawMessage
}

// Score is the outcome of grading an answer: Value, which is finite, or no score
// if Cause is not empty.
type Score struct {
	Value float64
	Cause Cause
}

// Missing returns the outcome of an answer that could not be graded.
func Missing(c Cause) Score { return Score{Cause: c} }

// Cause is the reason why an answer has no score, as rows and summaries show it.
// Example: "timeout".
type Cause string

// The causes.
const (
	NoExpected   Cause = "no_expected"  // the row has no expected value
	BadExpected  Cause = "bad_expected" // the grader can't compare with the row's expected value
	Unconfigured Cause = "unconfigured" // the worker's deployment lacks the scoring service
	Unavailable  Cause = "unavailable"  // the service can't be reached, fails, or asks to wait
	TimedOut     Cause = "timeout"      // the service took too long
	Malformed    Cause = "malformed"    // the service answered something else than scores
	Refused      Cause = "refused"      // the service refused the answer
	Declined     Cause = "declined"     // the service said that it has no score for the answer
	Stopped      Cause = "stopped"      // the run or the worker ended first
)

// Grader gives scores.
type Grader interface {
	// Grade returns the score of each case, in their order. It never fails as a
	// whole: what can't be graded has a cause. When ctx ends, it returns soon, with
	// the cause Stopped for cases that have no score yet. It keeps no reference to
	// the cases, and is safe for concurrent use.
	Grade(ctx context.Context, cases []Case) []Score
}

// New returns the grader of a kind that needs nothing but the answer. A pattern
// or schema that can't be compiled is Invalid, and so is a kind that needs a
// service.
func New(g config.Grade) (Grader, error) {
	score, err := scorer(g)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "grader " + g.Name, Err: err}
	}
	return pure(score), nil
}

// pure is a grader that scores each case by itself.
type pure func(Case) Score

// Grade implements Grader.
func (score pure) Grade(ctx context.Context, cases []Case) []Score {
	out := make([]Score, len(cases))
	for i, c := range cases {
		if ctx.Err() != nil {
			out[i] = Missing(Stopped)
			continue
		}
		out[i] = score(c)
	}
	return out
}

func scorer(g config.Grade) (func(Case) Score, error) {
	part, err := newExtractor(g.Extract, g.Pick)
	if err != nil {
		return nil, err
	}
	switch g.Kind {
	case config.GradeExact:
		return exact(part, g.IgnoreCase), nil
	case config.GradeRegex:
		return regex(g)
	case config.GradeNumeric:
		return numeric(part, g), nil
	case config.GradeChoice:
		return choice(part, g.Choices), nil
	case config.GradeLabel:
		return label(part, g), nil
	case config.GradeSchema:
		return schema(part, g.Schema)
	}
	return nil, fault.New(fault.Invalid, "the kind %q is not one that grades by itself", g.Kind)
}

// verdict returns the score of an answer that is right or wrong.
func verdict(right bool) Score {
	if right {
		return Score{Value: 1}
	}
	return Score{}
}
