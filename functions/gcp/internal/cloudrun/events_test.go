package cloudrun

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/cloud"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
)

// deadLetters returns what is in the dead letters of the tasks queue.
func deadLetters(t *testing.T, p host.Ports) (bodies []string) {
	t.Helper()
	got, err := p.Queues.Receive(t.Context(), queue.DeadLetterQueue(host.TaskQueue), 10, time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

func encode(t *testing.T, p events.Payload, m events.Meta) []byte {
	t.Helper()
	m.Source, m.Time = "rollout/test", time.Now()
	body, err := events.Encode(p, m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

const run = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

func TestPoisonIsAcknowledgedOnceItIsADeadLetter(t *testing.T) {
	t.Parallel()
	finalize := encode(t, events.Finalize{Run: run}, events.Meta{})
	for name, c := range map[string]struct {
		data []byte
		dead bool
	}{
		"not an event":              {[]byte("hello"), true},
		"an event for others":       {finalize, true},
		"an event that fails today": {encode(t, events.RunSubmitted{Run: run}, events.Meta{}), false},
	} {
		p := hosttest.New()
		err := Tasks(p, func(_ context.Context, e events.Payload) error {
			if _, ok := e.(events.RunSubmitted); ok {
				return fault.New(fault.Unavailable, "later")
			}
			return fault.New(fault.Invalid, "event %T is not for plan", e)
		})(t.Context(), Push{ID: "1", Data: c.data})
		if c.dead != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if got := deadLetters(t, p); c.dead != (len(got) == 1 && got[0] == string(c.data)) {
			t.Errorf("%s: the dead letters are %q", name, got)
		}
	}
}

// A dead letter that cannot be stored is delivered again.
func TestPoisonStaysUntilItIsADeadLetter(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	p.Queues = refusing{p.Queues}
	handle := Tasks(p, func(context.Context, events.Payload) error { return nil })
	if err := handle(t.Context(), Push{ID: "1", Data: []byte("hello")}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v, want Unavailable", err)
	}
}

// refusing are queues that cannot send.
type refusing struct{ queue.Queues }

func (refusing) Send(context.Context, string, [][]byte, time.Duration) error {
	return fault.New(fault.Unavailable, "down")
}

func TestEventsOfATaskAreCausedByIt(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	handle := Tasks(p, func(ctx context.Context, _ events.Payload) error {
		return p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced{Run: run})
	})
	submitted := encode(t, events.RunSubmitted{Run: run}, events.Meta{Hops: 4})
	if err := handle(t.Context(), Push{Data: submitted}); err != nil {
		t.Fatal(err)
	}
	got, err := p.Queues.Receive(t.Context(), host.CoordinateQueue, 1, time.Minute, 0)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if e, _, err := events.Decode(got[0].Body); err != nil || e.Hops != 5 {
		t.Errorf("the event has %d hops, %v, want 5", e.Hops, err)
	}
}

// notification returns the push of a bucket's notification.
func notification(event, bucket, key, generation, object string) Push {
	return Push{ID: "1", Subscription: "rollout-objects", Data: []byte(object), Attributes: map[string]string{
		"eventType": event, "bucketId": bucket, "objectId": key, "objectGeneration": generation,
		"notificationConfig": "projects/_/buckets/acme/notificationConfigs/1", "payloadFormat": "JSON_API_V1",
	}}
}

func TestNotificationsBecomeNewObjects(t *testing.T) {
	t.Parallel()
	in := Bucket{"acme", "team-a/"}
	const size = `{"kind":"storage#object","size":"7"}`
	mine := events.ObjectCreated{Bucket: "acme", Key: "prompts/a b.jsonl", Version: "1700", Size: 7}
	const uploaded = "OBJECT_FINALIZE"
	for name, c := range map[string]struct {
		push Push
		ok   bool
		kind fault.Kind
	}{
		"a new object":     {notification(uploaded, "acme", "team-a/prompts/a b.jsonl", "1700", size), true, 0},
		"a deleted object": {notification("OBJECT_DELETE", "acme", "team-a/prompts/a b.jsonl", "1700", size), false, 0},
		"another bucket":   {notification(uploaded, "other", "team-a/prompts/a b.jsonl", "1700", size), false, 0},
		"another folder":   {notification(uploaded, "acme", "prompts/a b.jsonl", "1700", size), false, 0},
		"the prefix":       {notification(uploaded, "acme", "team-a/", "1700", size), false, 0},
		"no generation":    {notification(uploaded, "acme", "team-a/x", "", size), false, fault.Invalid},
		"bad generation":   {notification(uploaded, "acme", "team-a/x", "-1", size), false, fault.Invalid},
		"no object":        {notification(uploaded, "acme", "team-a/x", "1", ""), false, fault.Invalid},
		"a size in words":  {notification(uploaded, "acme", "team-a/x", "1", `{"size":"big"}`), false, fault.Invalid},
		"no notification":  {Push{ID: "1", Data: []byte("x")}, false, 0},
	} {
		got, ok, err := in.readObject(c.push)
		if ok != c.ok || ok && got != mine || (err != nil) != (c.kind != 0) || err != nil && !fault.Is(err, c.kind) {
			t.Errorf("%s: %+v, %t, %v", name, got, ok, err)
		}
	}
}

func TestObjectThatCannotBeARunIsADeadLetter(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	handle := Objects(p, Bucket{Name: "acme"}, func(_ context.Context, e events.ObjectCreated) error {
		if strings.HasSuffix(e.Key, "bad.jsonl") {
			return fault.New(fault.Invalid, "its config is wrong")
		}
		return fault.New(fault.Unavailable, "later")
	})
	push := func(key string) error {
		return handle(t.Context(), notification("OBJECT_FINALIZE", "acme", key, "5", `{"size":"7"}`))
	}
	if err := push("prompts/good.jsonl"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an object that fails today: %v", err)
	}
	if err := push("prompts/bad.jsonl"); err != nil {
		t.Errorf("an object that can't be a run: %v", err)
	}
	got := deadLetters(t, p)
	if len(got) != 1 {
		t.Fatalf("the dead letters are %q", got)
	}
	want := events.ObjectCreated{Bucket: "acme", Key: "prompts/bad.jsonl", Version: "5", Size: 7}
	if _, e, err := events.Decode([]byte(got[0])); err != nil || e != want {
		t.Errorf("the dead letter is %+v, %v, want the event %+v", e, err, want)
	}
	if err := handle(t.Context(), notification("OBJECT_FINALIZE", "acme", "x", "no", "")); err != nil {
		t.Errorf("a notification that can't be read: %v", err)
	}
}

// auditLog is an entry of the audit log as Compute Engine writes it.
const auditLog = `{"protoPayload":{"@type":"type.googleapis.com/google.cloud.audit.AuditLog",
"status":{"message":%q},"authenticationInfo":{"principalEmail":"system@google.com"},
"serviceName":"compute.googleapis.com","methodName":%q,
"resourceName":"projects/acme/zones/europe-west1-c/instances/rollout-small-x7k2",
"request":{"@type":"type.googleapis.com/compute.instances.preempted"}},"insertId":"q",
"resource":{"type":%q,"labels":{"instance_id":%q,"project_id":"acme","zone":"europe-west1-c"}},
"timestamp":"2026-09-16T10:42:31.325309Z","severity":"INFO",
"logName":"projects/acme/logs/cloudaudit.googleapis.com%%2Fsystem_event",
"operation":{"id":"systemevent-1","producer":"compute.instances.preempted","first":true,"last":true}}`

func TestAuditLogTellsOfMachines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 9, 16, 10, 42, 31, 325309000, time.UTC)
	const repair = "Instance Group Manager 'projects/27/regions/r/instanceGroupManagers/rollout-small' initiated " +
		"recreateInstance on instance 'projects/27/zones/z/instances/x'. Reason: instance should be RUNNING, but is STOPPING"
	for name, c := range map[string]struct {
		entry string
		want  cloud.MachineNotice
		kind  fault.Kind
	}{
		"preempted": {fmt.Sprintf(auditLog, "Instance was preempted.", "compute.instances.preempted", "gce_instance", "1844"),
			cloud.MachineNotice{Kind: cloud.MachinePreempted, Machine: "1844", Fleet: "rollout-small",
				Reason: "Instance was preempted.", At: at}, 0},
		"failed host": {fmt.Sprintf(auditLog, "", "compute.instances.hostError", "gce_instance", "1844"),
			cloud.MachineNotice{Kind: cloud.MachineStopping, Machine: "1844", Fleet: "rollout-small",
				Reason: "compute.instances.hostError", At: at}, 0},
		"maintenance": {fmt.Sprintf(auditLog, "m", "compute.instances.terminateOnHostMaintenance", "gce_instance", "1"),
			cloud.MachineNotice{Kind: cloud.MachineStopping, Machine: "1", Fleet: "rollout-small", Reason: "m", At: at}, 0},
		"recreated": {fmt.Sprintf(auditLog, repair, "compute.instances.repair.recreateInstance", "gce_instance", "1844"),
			cloud.MachineNotice{Kind: cloud.MachineTerminated, Machine: "1844", Fleet: "rollout-small", Reason: repair,
				At: at}, 0},
		"another event": {fmt.Sprintf(auditLog, "", "v1.compute.instances.insert", "gce_instance", "1844"),
			cloud.MachineNotice{}, 0},
		"another resource": {fmt.Sprintf(auditLog, "", "compute.instances.preempted", "gke_node", "1844"),
			cloud.MachineNotice{}, 0},
		"a name for an id": {fmt.Sprintf(auditLog, "", "compute.instances.preempted", "gce_instance", "vm-1"),
			cloud.MachineNotice{}, fault.Invalid},
		"not an entry": {"hello", cloud.MachineNotice{}, fault.Invalid},
	} {
		got, ok, err := readNotice([]byte(c.entry))
		failed := err != nil
		if got != c.want || ok != (c.want.Kind != "") || failed != (c.kind != 0) || failed && !fault.Is(err, c.kind) {
			t.Errorf("%s: %+v, %t, %v", name, got, ok, err)
		}
	}
}

func TestNoticeThatFailsIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	handle := Notices(hosttest.New(), func(context.Context, cloud.MachineNotice) error {
		return fault.New(fault.Unavailable, "later")
	})
	entry := fmt.Sprintf(auditLog, "", "compute.instances.preempted", "gce_instance", "1844")
	if err := handle(t.Context(), Push{Data: []byte(entry)}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
	if err := handle(t.Context(), Push{Data: []byte("hello")}); err != nil {
		t.Errorf("what is not an entry: %v", err)
	}
}
