package aws

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	staticcredentials "github.com/aws/aws-sdk-go-v2/credentials"

	"rollout/events"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/observe/meter"
	"rollout/shared/queue"
)

const run = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

func deployment(t *testing.T) config.Deployment {
	t.Helper()
	d, err := config.ParseDeployment("x.toml", []byte("schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"eu-west-1\"\nname = \"acme\"\n[cloud.s3]\nbucket = \"acme-batches\"\nprefix = \"team-a/\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpeningAStackAsksNobody(t *testing.T) {
	t.Parallel()
	nowhere := awsconfig.WithBaseEndpoint("http://127.0.0.1:1")
	nobody := awsconfig.WithCredentialsProvider(staticcredentials.NewStaticCredentialsProvider("000000000000", "none", ""))
	s, err := OpenStack(t.Context(), deployment(t), StackOptions{SDK: []func(*awsconfig.LoadOptions) error{nowhere, nobody}})
	if err != nil {
		t.Fatal(err)
	}
	if s.AWS.Region != "eu-west-1" || s.Ports.Source != "cli" || s.Ports.Log == nil || s.Ports.Clock == nil {
		t.Errorf("in %q, of %q", s.AWS.Region, s.Ports.Source)
	}
	if _, ok := s.Ports.Queues.(queue.Depther); !ok {
		t.Error("its queues can't be counted")
	}
	if _, err := OpenStack(t.Context(), deployment(t), StackOptions{Options: cloud.Options{Meter: meter.New()}}); err != nil {
		t.Errorf("with a meter: %v", err)
	}
}

func TestALaptopsConfigIsNoStack(t *testing.T) {
	t.Parallel()
	_, err := OpenStack(t.Context(), config.DefaultDeployment(), StackOptions{})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "[cloud]") {
		t.Errorf("%v", err)
	}
}

// fixture is a stack whose store and functions are in memory.
type fixture struct {
	host.Ports
	calls map[string]int // by function
	fails error
}

func newFixture() *fixture {
	d := &fixture{calls: map[string]int{}}
	r := &functionQueues{store: memory.NewQueues(clock.System{}), functionName: config.Cloud{Name: "acme"}.FunctionName,
		invoke: func(_ context.Context, function string, events [][]byte) error {
			d.calls[function] += len(events)
			return d.fails
		}}
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

// Whatever is a task calls its function, in whichever of the queues it is sent;
// and what is none is refused there, and sent anywhere else.
func TestTasksCallTheirFunctions(t *testing.T) {
	t.Parallel()
	tasks := map[events.Type]string{
		events.TypeObjectCreated:   "acme-submit",
		events.TypeRunSubmitted:    "acme-plan",
		events.TypePlanRange:       "acme-plan",
		events.TypeFinalize:        "acme-finalize",
		events.TypeFinalizeSegment: "acme-finalize",
	}
	for _, p := range []events.Payload{
		events.ObjectCreated{Bucket: "b", Key: "prompts/x.jsonl", Version: "v"}, events.RunSubmitted{Run: run}, events.PlanRange{Run: run}, events.Finalize{Run: run}, events.FinalizeSegment{Run: run, To: 1},
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
				t.Errorf("%d tasks wait in %s", n, q)
			}
		}
		d := newFixture()
		if err := d.Send(t.Context(), host.CoordinateQueue, p); err != nil || len(d.calls) > 0 || d.depth(t, host.CoordinateQueue) != 1 {
			t.Errorf("%T to coordinate: %v, called %v", p, err, d.calls)
		}
	}
}

func TestATaskThatNobodyTakesIsAnError(t *testing.T) {
	t.Parallel()
	d := newFixture()
	d.fails = fault.New(fault.Throttled, "slow down")
	if err := d.Send(t.Context(), host.TaskQueue, events.Finalize{Run: run}); !fault.Is(err, fault.Throttled) {
		t.Errorf("%v", err)
	}
	d = newFixture()
	body, err := events.Encode(events.Finalize{Run: run}, events.Meta{Source: "rollout/test", Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	err = d.Queues.Send(t.Context(), host.TaskQueue, [][]byte{body}, time.Second)
	if !fault.Is(err, fault.Invalid) || len(d.calls) > 0 {
		t.Errorf("delayed: %v, called %v", err, d.calls)
	}
	if err := d.Queues.Send(t.Context(), host.TaskQueue, [][]byte{[]byte("nonsense")}, 0); !fault.Is(err, fault.Invalid) || len(d.calls) > 0 {
		t.Errorf("nonsense: %v, called %v", err, d.calls)
	}
	if _, err := d.Queues.Receive(t.Context(), host.TaskQueue, 1, time.Second, 0); !fault.Is(err, fault.Invalid) {
		t.Errorf("received: %v", err)
	}
	if err := d.Queues.Extend(t.Context(), host.PlanQueue, "r", time.Second); !fault.Is(err, fault.Conflict) {
		t.Errorf("extended: %v", err)
	}
	if err := d.Queues.Nack(t.Context(), host.PlanQueue, "r", 0); err != nil {
		t.Errorf("given back: %v", err)
	}
}

// Tasks of both kinds that nobody can act on are in one queue, and are counted
// once.
func TestDeadTasksAreInOneQueue(t *testing.T) {
	t.Parallel()
	d := newFixture()
	for _, q := range []string{host.TaskQueue, host.PlanQueue} {
		if err := d.DeadLetter(t.Context(), q, queue.Message{ID: "1", Body: []byte(q)}, fault.New(fault.Invalid, "what?")); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := d.depth(t, queue.DeadLetterQueue(host.TaskQueue)), d.depth(t, queue.DeadLetterQueue(host.PlanQueue)); a != 2 || b != 0 {
		t.Errorf("%d and %d", a, b)
	}
	ms, err := d.Queues.Receive(t.Context(), queue.DeadLetterQueue(host.PlanQueue), 10, time.Minute, 0)
	var bodies, receipts []string
	for _, m := range ms {
		bodies, receipts = append(bodies, string(m.Body)), append(receipts, m.Receipt)
	}
	slices.Sort(bodies)
	if err != nil || !slices.Equal(bodies, []string{host.PlanQueue, host.TaskQueue}) {
		t.Fatalf("%q, %v", bodies, err)
	}
	if err := d.Queues.Ack(t.Context(), queue.DeadLetterQueue(host.PlanQueue), receipts); err != nil || d.depth(t, queue.DeadLetterQueue(host.TaskQueue)) != 0 {
		t.Errorf("they can't be removed: %v", err)
	}
}
