package grade

import (
	"context"
	"encoding/json"
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
	Unparseable  Cause = "unparseable"  // the judge said something else than it was asked for
	JudgeFailed  Cause = "judge_failed" // the judge's item has no answer
)

// Open is the cause of a score for which a judge is not asked yet. It stays if the run
// ends first.
const Open = Stopped

// Grader gives scores.
type Grader interface {
	// Grade returns the score of each case, in their order. It never fails as a
	// whole: what can't be graded has a cause. When ctx ends, it returns soon, with
	// the cause Stopped for cases that have no score yet. It keeps no reference to
	// the cases, and is safe for concurrent use.
	Grade(ctx context.Context, cases []Case) []Score
}
