package host

import "rollout/events"

// Names of the functions.
const (
	SubmitFunction     = "submit"
	PlanFunction       = "plan"
	CoordinateFunction = "coordinate"
	FinalizeFunction   = "finalize"
	ReclaimFunction    = "reclaim"
	InterruptFunction  = "interrupt"
	APIFunction        = "api"
)

// FunctionFor returns the name of the function that handles a task of that type,
// or "" if events of that type are not tasks. A cloud that has no queue of tasks
// calls that function instead.
func FunctionFor(t events.Type) string {
	switch t {
	case events.TypeObjectCreated, events.TypeRetryRequested, events.TypeBatchRequested:
		return SubmitFunction
	case events.TypeRunSubmitted, events.TypePlanRange:
		return PlanFunction
	case events.TypeFinalize, events.TypeFinalizeSegment:
		return FinalizeFunction
	}
	return ""
}

// IsTaskQueue reports whether what is sent to the queue is tasks.
func IsTaskQueue(q string) bool { return q == TaskQueue || q == PlanQueue }
