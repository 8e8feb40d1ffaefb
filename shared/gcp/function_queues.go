package gcp

import (
	"context"
	"time"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// functionQueues are the queues of a stack. A function has a topic with its name,
// whose messages are pushed to it, so that an idle stack polls nothing. The dead
// letters of both task queues share one queue.
//
//	tasks, plan ───▶ the topic of the function that handles the event: "plan"
//	coordinate ────▶ the topic "coordinate"
//	plan-dead ─────▶ tasks-dead
//	all others ────▶ queues with a pull subscription
type functionQueues struct{ store *Queues }

// Topics whose messages no queue of the product names; see functions/gcp.
const (
	// ObjectsTopic has the bucket's notifications.
	ObjectsTopic = "objects"
	// MachinesTopic has the audit log's entries about machines.
	MachinesTopic = "machines"
	// EventsTopic has the events that people are told; see EventTopic.
	EventsTopic = "events"
)

// pushed reports whether the messages of a queue are pushed to functions.
func pushed(q string) bool { return host.IsTaskQueue(q) || q == host.CoordinateQueue }

// storeQueue returns the queue of the store that holds the messages of q.
func storeQueue(q string) string {
	if q == queue.DeadLetterQueue(host.PlanQueue) {
		return queue.DeadLetterQueue(host.TaskQueue)
	}
	return q
}

// Send sends tasks to the functions that handle them, one function after the other,
// and other messages to their queue; see queue.Queues. A delayed message for a
// function is Invalid.
func (f functionQueues) Send(ctx context.Context, q string, bodies [][]byte, delay time.Duration) error {
	if pushed(q) && delay > 0 {
		return fault.New(fault.Invalid, "send to %s: what is pushed to a function cannot be delayed (by %v)", q, delay)
	}
	if !host.IsTaskQueue(q) {
		return f.store.Send(ctx, storeQueue(q), bodies, delay)
	}
	if err := queue.CheckSend(q, bodies, delay); err != nil {
		return err
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
		if err := f.store.Send(ctx, to, bodies, 0); err != nil {
			return err
		}
	}
	return nil
}

// Receive receives messages of a queue; see queue.Queues. Receiving what is pushed to
// functions is Invalid.
func (f functionQueues) Receive(ctx context.Context, q string, most int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
	if pushed(q) {
		return nil, fault.New(fault.Invalid, "receive from %s: its messages are pushed to functions", q)
	}
	return f.store.Receive(ctx, storeQueue(q), most, visibility, wait)
}

// Extend hides a message of a queue; see queue.Queues.
func (f functionQueues) Extend(ctx context.Context, q, receipt string, visibility time.Duration) error {
	if pushed(q) {
		return fault.New(fault.Conflict, "extend in %s: its messages are pushed to functions", q)
	}
	return f.store.Extend(ctx, storeQueue(q), receipt, visibility)
}

// Ack removes messages of a queue; see queue.Queues. For what is pushed it does
// nothing: a function acknowledges a message by its answer.
func (f functionQueues) Ack(ctx context.Context, q string, receipts []string) error {
	if pushed(q) {
		return nil
	}
	return f.store.Ack(ctx, storeQueue(q), receipts)
}

// Nack makes a message of a queue visible again; see queue.Queues. For what is pushed
// it does nothing.
func (f functionQueues) Nack(ctx context.Context, q, receipt string, delay time.Duration) error {
	if pushed(q) {
		return nil
	}
	return f.store.Nack(ctx, storeQueue(q), receipt, delay)
}
