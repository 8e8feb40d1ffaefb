package blame

import (
	"math"
	"time"
)

// Outcome names how a request ended. Example: "status_403". Answered is an answer.
type Outcome string

// Answered is the outcome of a request that was answered.
const Answered Outcome = ""

// Nature is what it means when all requests meet an outcome.
type Nature uint8

// The natures.
const (
	Outage  Nature = iota // it may pass: wait
	Setting               // only a user can mend it: the run pauses
)

// Failure is the outcome of a request that was not answered.
type Failure struct {
	Outcome Outcome
	Nature  Nature
	// RetryAfter is the server's hint when to ask again; 0 without one.
	RetryAfter time.Duration
	// Words are what the server said, for users.
	Words string
}

// Backoff returns the longest wait before a failed request's n-th repetition, from 1.
// Where only a user can mend the cause, or the item is at fault, waiting is of no use:
// it is short, so that the item does not hold its slot for long.
func (n Nature) Backoff(repetition int) time.Duration {
	longest := 10 * time.Second
	if n == Setting {
		longest = time.Second
	}
	return min(firstBackoff<<min(repetition-1, 20), longest)
}

const firstBackoff = 50 * time.Millisecond

// Item identifies what was asked for.
type Item struct {
	Run   string
	Index uint64
}

// comparisonIndex stands for all comparisons of a run.
const comparisonIndex = math.MaxUint64

// Request is a request under way, from Admit or Compare to Answered, Failed or
// Abandon.
type Request struct {
	item       Item
	contact    *contact // of the run; nil for a comparison
	epoch      int      // of the contact
	comparison *server  // nil for a request of an item
	began      time.Time
	first      bool
	tries      *server // that the request finds out about; nil for none
}

// Refusal is why a run must pause.
type Refusal struct {
	Server string
	Failure
}
