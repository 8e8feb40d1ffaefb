package fault

import "errors"

// Class is the reason why an item failed, as errors.jsonl, summary.json and
// `rollout status` show it. Example: "invalid_line".
type Class string

// The classes of items.
const (
	InvalidLine  Class = "invalid_line"  // the input line is not a request
	DuplicateID  Class = "duplicate_id"  // an earlier line has the same id
	TooLong      Class = "too_long"      // the prompt exceeds the model's context
	Refused      Class = "refused"       // the engine answered 4xx
	Engine       Class = "engine"        // 5xx, an answer without choices or a malformed one
	Poison       Class = "poison"        // the item crashed engines
	Timeout      Class = "timeout"       // no token progress within the deadline
	Expired      Class = "expired"       // the run's deadline came first
	CanceledItem Class = "canceled"      // the run was stopped first
	Budget       Class = "budget"        // the run's budget was used up first
	Storage      Class = "storage"       // the answer could not be kept
	WorkerLost   Class = "worker_lost"   // runs with limits.fail_fast only: a worker vanished first
	InputChanged Class = "input_changed" // the input no longer has the planned bytes
	Diverged     Class = "diverged"      // the loss or a gradient of a training is not finite
	Pruned       Class = "pruned"        // the run decided that the item's variant is not worth more
	ResultError  Class = "result_error"  // the agent left no result that can be read
	GradeError   Class = "grade_error"   // the agent left a malformed grade
	Sandbox      Class = "sandbox"       // the agent's sandbox failed
)

// Classes lists every class, in the order in which summaries show them.
var Classes = []Class{InvalidLine, DuplicateID, TooLong, Refused, Engine, Poison, Timeout,
	Expired, CanceledItem, Budget, Storage, WorkerLost, InputChanged, Diverged, Pruned,
	ResultError, GradeError, Sandbox}

// Unanswered reports whether a run gives this class to items that it leaves without an
// answer, because it ended or pruned them: such items are not at fault.
func (c Class) Unanswered() bool {
	switch c {
	case CanceledItem, Expired, Budget, InputChanged, Pruned:
		return true
	}
	return false
}

// OfItem reports whether an item of this class failed by itself: its line is wrong, the model
// refused it, or its agent left nothing that can be read. Asked again, it would end so
// again. The other classes say what became of a server, a worker or the run.
func (c Class) OfItem() bool {
	switch c {
	case InvalidLine, DuplicateID, TooLong, Refused, ResultError, GradeError:
		return true
	}
	return false
}

// ClassOf returns the class of the outermost *Error in err's chain that has one, or
// "".
func ClassOf(err error) Class {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Class != "" {
			return e.Class
		}
		err = e.Err
	}
	return ""
}
