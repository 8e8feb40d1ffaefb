package aws

import (
	"context"
	"time"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// store holds the messages of all queues but the task queues.
type store interface {
	queue.Queues
	queue.Depther
}

// functionQueues are the queues of a stack. Sending a task invokes its function,
// so a stack has no task queues, and an idle stack polls none. All other messages
// go to the store. The dead letters of both task queues share one queue of the
// store, to which Lambda also sends the events of failed invocations.
//
//	tasks, plan ───▶ an invocation of the function that handles the event
//	plan-dead ─────▶ tasks-dead
//	all others ────▶ the store
type functionQueues struct {
	store
	invoke       func(ctx context.Context, function string, events [][]byte) error
	functionName func(function string) string // a function's name in this stack
}

// storeQueue returns the queue of the store that holds the messages of q.
func storeQueue(q string) string {
	if q == queue.DeadLetterQueue(host.PlanQueue) {
		return queue.DeadLetterQueue(host.TaskQueue)
	}
	return q
}

// Send invokes the functions that handle the tasks, one function after the other;
// see queue.Queues. A delayed task is Invalid.
func (r *functionQueues) Send(ctx context.Context, q string, bodies [][]byte, delay time.Duration) error {
	if !host.IsTaskQueue(q) {
		return r.store.Send(ctx, storeQueue(q), bodies, delay)
	}
	if err := queue.CheckSend(q, bodies, delay); err != nil {
		return err
	}
	if delay > 0 {
		return fault.New(fault.Invalid, "send to %s: a task cannot be delayed (by %v)", q, delay)
	}
	calls := map[string][][]byte{}
	for i, body := range bodies {
		e, _, err := events.Decode(body)
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "send to %s: body %d", q, i)
		}
		to := host.FunctionFor(e.Type)
		if to == "" {
			return fault.New(fault.Invalid, "send to %s: no function handles events of the type %s", q, e.Type)
		}
		calls[to] = append(calls[to], body)
	}
	for to, bodies := range calls {
		if err := r.invoke(ctx, r.functionName(to), bodies); err != nil {
			return err
		}
	}
	return nil
}

// Receive receives messages from the store; see queue.Queues. Receiving tasks is
// Invalid.
func (r *functionQueues) Receive(ctx context.Context, q string, most int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
	if host.IsTaskQueue(q) {
		return nil, fault.New(fault.Invalid, "receive from %s: tasks invoke functions and are not queued", q)
	}
	return r.store.Receive(ctx, storeQueue(q), most, visibility, wait)
}

// Extend hides a message of the store; see queue.Queues.
func (r *functionQueues) Extend(ctx context.Context, q, receipt string, visibility time.Duration) error {
	if host.IsTaskQueue(q) {
		return fault.New(fault.Conflict, "extend in %s: tasks invoke functions and are not queued", q)
	}
	return r.store.Extend(ctx, storeQueue(q), receipt, visibility)
}

// Ack removes messages from the store; see queue.Queues. For task queues it does
// nothing: a function acknowledges its task by returning without an error.
func (r *functionQueues) Ack(ctx context.Context, q string, receipts []string) error {
	if host.IsTaskQueue(q) {
		return nil
	}
	return r.store.Ack(ctx, storeQueue(q), receipts)
}

// Nack makes a message of the store visible again; see queue.Queues. For task
// queues it does nothing.
func (r *functionQueues) Nack(ctx context.Context, q, receipt string, delay time.Duration) error {
	if host.IsTaskQueue(q) {
		return nil
	}
	return r.store.Nack(ctx, storeQueue(q), receipt, delay)
}

// Depth counts the messages in the store; see queue.Depther. It reports 0 for task
// queues, because Lambda does not tell how many invocations wait. Dead letters of
// both task queues count for the queue that holds them.
func (r *functionQueues) Depth(ctx context.Context, q string) (visible, hidden int, err error) {
	if host.IsTaskQueue(q) || storeQueue(q) != q {
		return 0, 0, nil
	}
	return r.store.Depth(ctx, q)
}
