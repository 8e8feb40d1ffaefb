package aws

import (
	"context"
	"time"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// store keeps the messages of all other queues.
type store interface {
	queue.Queues
	queue.Depther
}

// functionQueues are the queues of a stack. Sending a task calls its function, so
// a stack has no queue of tasks and polls none while it has no work. All other
// messages go to the store. So do the dead letters of tasks, into one queue,
// where Lambda also puts the events of failed invocations.
//
//	tasks, plan ───▶ an invocation of the function that the event is for
//	plan-dead ─────▶ tasks-dead
//	all others ────▶ the store
type functionQueues struct {
	store
	invoke       func(ctx context.Context, function string, events [][]byte) error
	functionName func(function string) string // a function's name in this stack
}

// at is the queue of the store that stands for q.
func at(q string) string {
	if q == queue.DeadLetterQueue(host.PlanQueue) {
		return queue.DeadLetterQueue(host.TaskQueue)
	}
	return q
}

// Send calls the functions that tasks are for, one after the other; see
// queue.Queues. A task can't be delayed: that is Invalid.
func (r *functionQueues) Send(ctx context.Context, q string, bodies [][]byte, delay time.Duration) error {
	if !host.IsTaskQueue(q) {
		return r.store.Send(ctx, at(q), bodies, delay)
	}
	if err := queue.CheckSend(q, bodies, delay); err != nil {
		return err
	}
	if delay > 0 {
		return fault.New(fault.Invalid, "send to %s: a function can't be called %v later", q, delay)
	}
	calls := map[string][][]byte{}
	for i, body := range bodies {
		e, _, err := events.Decode(body)
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "send to %s: body %d", q, i)
		}
		to := host.FunctionFor(e.Type)
		if to == "" {
			return fault.New(fault.Invalid, "send to %s: no function is for events of the type %s", q, e.Type)
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

// Receive receives what is in the store; see queue.Queues. Tasks can't be
// received: that is Invalid.
func (r *functionQueues) Receive(ctx context.Context, q string, most int, visibility, wait time.Duration) ([]queue.Message, error) {
	if host.IsTaskQueue(q) {
		return nil, fault.New(fault.Invalid, "receive from %s: what is sent there calls functions", q)
	}
	return r.store.Receive(ctx, at(q), most, visibility, wait)
}

// Extend hides a message of the store; see queue.Queues.
func (r *functionQueues) Extend(ctx context.Context, q, receipt string, visibility time.Duration) error {
	if host.IsTaskQueue(q) {
		return fault.New(fault.Conflict, "extend in %s: what is sent there calls functions", q)
	}
	return r.store.Extend(ctx, at(q), receipt, visibility)
}

// Ack removes messages of the store; see queue.Queues. A task has no receipt,
// so that none holds: its function acknowledges it by ending.
func (r *functionQueues) Ack(ctx context.Context, q string, receipts []string) error {
	if host.IsTaskQueue(q) {
		return nil
	}
	return r.store.Ack(ctx, at(q), receipts)
}

// Nack shows a message of the store again; see queue.Queues.
func (r *functionQueues) Nack(ctx context.Context, q, receipt string, delay time.Duration) error {
	if host.IsTaskQueue(q) {
		return nil
	}
	return r.store.Nack(ctx, at(q), receipt, delay)
}

// Depth counts what is in the store; see queue.Depther. How many tasks wait,
// Lambda does not tell: none do for long. Dead letters of both kinds of task
// count as those of one.
func (r *functionQueues) Depth(ctx context.Context, q string) (visible, hidden int, err error) {
	if host.IsTaskQueue(q) || at(q) != q {
		return 0, 0, nil
	}
	return r.store.Depth(ctx, q)
}
