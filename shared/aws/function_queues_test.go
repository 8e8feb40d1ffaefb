package aws

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/queue"
)

const run = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

// fixture has the queues of a stack over an in-memory store, and counts invocations.
type fixture struct {
	host.Ports
	calls map[string]int // events by function
	fails error          // the result of every invocation
}

func newFixture() *fixture {
	d := &fixture{calls: map[string]int{}}
	r := &functionQueues{
		store:        memory.NewQueues(clock.System{}),
		functionName: config.Cloud{Name: "acme"}.FunctionName,
		invoke: func(_ context.Context, function string, events [][]byte) error {
			d.calls[function] += len(events)
			return d.fails
		},
	}
	d.Ports = host.Ports{Queues: r, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "test"}
	return d
}

func (d *fixture) depth(t *testing.T, q string) int {
	t.Helper()
	visible, hidden, err := d.Queues.(queue.Depther).Depth(t.Context(), q)
	if err != nil {
		t.Errorf("depth of %s: %v", q, err)
	}
	return visible + hidden
}

// A task invokes its function from either task queue. Task queues refuse other events,
// which all other queues accept.
func TestSendingTasksInvokesTheirFunctions(t *testing.T) {
	t.Parallel()
	tasks := map[events.Type]string{
		events.TypeObjectCreated:   "acme-submit",
		events.TypeRunSubmitted:    "acme-plan",
		events.TypePlanRange:       "acme-plan",
		events.TypeFinalize:        "acme-finalize",
		events.TypeFinalizeSegment: "acme-finalize",
	}
	for _, p := range []events.Payload{
		events.ObjectCreated{Bucket: "b", Key: "prompts/x.jsonl", Version: "v"},
		events.RunSubmitted{Run: run}, events.PlanRange{Run: run},
		events.Finalize{Run: run}, events.FinalizeSegment{Run: run, To: 1},
		events.Wakeup{Run: run}, events.ShardDone{Run: run, Attempt: 1, Worker: "w"},
	} {
		for _, q := range []string{host.TaskQueue, host.PlanQueue} {
			d := newFixture()
			err := d.Send(t.Context(), q, p, p)
			function, isTask := tasks[p.EventType()]
			if isTask != (err == nil) || err != nil && !fault.Is(err, fault.Invalid) {
				t.Errorf("%T to %s: %v", p, q, err)
			}
			if isTask && !maps.Equal(d.calls, map[string]int{function: 2}) || !isTask && len(d.calls) > 0 {
				t.Errorf("%T to %s called %v", p, q, d.calls)
			}
			if n := d.depth(t, q); n != 0 {
				t.Errorf("%s has %d messages, want 0", q, n)
			}
		}
		d := newFixture()
		err := d.Send(t.Context(), host.CoordinateQueue, p)
		if err != nil || len(d.calls) > 0 || d.depth(t, host.CoordinateQueue) != 1 {
			t.Errorf("%T to coordinate: %v, called %v", p, err, d.calls)
		}
	}
}

func TestTaskQueuesRefuseUnsupportedOperations(t *testing.T) {
	t.Parallel()
	d := newFixture()
	d.fails = fault.New(fault.Throttled, "slow down")
	if err := d.Send(t.Context(), host.TaskQueue, events.Finalize{Run: run}); !fault.Is(err, fault.Throttled) {
		t.Errorf("failed invocation: Send = %v, want Throttled", err)
	}
	d = newFixture()
	body, err := events.Encode(events.Finalize{Run: run}, events.Meta{Source: "rollout/test", Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	err = d.Queues.Send(t.Context(), host.TaskQueue, [][]byte{body}, time.Second)
	if !fault.Is(err, fault.Invalid) || len(d.calls) > 0 {
		t.Errorf("delayed task: %v, called %v, want Invalid", err, d.calls)
	}
	err = d.Queues.Send(t.Context(), host.TaskQueue, [][]byte{[]byte("nonsense")}, 0)
	if !fault.Is(err, fault.Invalid) || len(d.calls) > 0 {
		t.Errorf("unreadable task: %v, called %v, want Invalid", err, d.calls)
	}
	if _, err := d.Queues.Receive(t.Context(), host.TaskQueue, 1, time.Second, 0); !fault.Is(err, fault.Invalid) {
		t.Errorf("Receive = %v, want Invalid", err)
	}
	if err := d.Queues.Extend(t.Context(), host.PlanQueue, "r", time.Second); !fault.Is(err, fault.Conflict) {
		t.Errorf("Extend = %v, want Conflict", err)
	}
	if err := d.Queues.Nack(t.Context(), host.PlanQueue, "r", 0); err != nil {
		t.Errorf("Nack = %v", err)
	}
}

// Dead letters of both task queues are in one queue and are counted once.
func TestDeadTasksShareOneQueue(t *testing.T) {
	t.Parallel()
	d := newFixture()
	for _, q := range []string{host.TaskQueue, host.PlanQueue} {
		m := queue.Message{ID: "1", Body: []byte(q)}
		if err := d.DeadLetter(t.Context(), q, m, fault.New(fault.Invalid, "unknown task")); err != nil {
			t.Fatal(err)
		}
	}
	deadTasks, deadPlans := queue.DeadLetterQueue(host.TaskQueue), queue.DeadLetterQueue(host.PlanQueue)
	if tasks, plans := d.depth(t, deadTasks), d.depth(t, deadPlans); tasks != 2 || plans != 0 {
		t.Errorf("%s has %d messages and %s %d, want 2 and 0", deadTasks, tasks, deadPlans, plans)
	}
	ms, err := d.Queues.Receive(t.Context(), deadPlans, 10, time.Minute, 0)
	var bodies, receipts []string
	for _, m := range ms {
		bodies, receipts = append(bodies, string(m.Body)), append(receipts, m.Receipt)
	}
	slices.Sort(bodies)
	if err != nil || !slices.Equal(bodies, []string{host.PlanQueue, host.TaskQueue}) {
		t.Fatalf("received %q, %v, want both tasks", bodies, err)
	}
	if err := d.Queues.Ack(t.Context(), deadPlans, receipts); err != nil || d.depth(t, deadTasks) != 0 {
		t.Errorf("Ack of the dead letters = %v", err)
	}
}
