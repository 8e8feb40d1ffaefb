package coordinate_test

import (
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

func TestEventOutsideThePlanIsDeadLetteredAndDrainsItsSender(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 2, 2)
	c := d.coordinator()
	d.apply(c, look)
	if left := d.apply(c, done(0, 2), done(7, 2)); left != 0 {
		t.Errorf("%d events left, want none: the dead letter is acknowledged, too", left)
	}
	if s := d.state(); s.Counts.OK != 2 {
		t.Errorf("counts %+v", s.Counts)
	}
	dead := d.received(queue.DeadLetterQueue(host.CoordinateQueue))
	if len(dead) != 1 || dead[0].(events.ShardDone).Shard != 7 {
		t.Errorf("dead letters %v", dead)
	}
	if m := hosttest.Load[record.WorkerMark](t, d.Ports, record.WorkerKey("w1")); m.DrainReason == "" || m.Sequence != 1 {
		t.Errorf("its worker's mark is %+v", m)
	}
}

func TestEventOfAnExpiredRunIsAcknowledged(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 1)
	const gone identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVX"
	hosttest.Save(t, d.Ports, record.FoundKey(gone), record.FoundInput{Schema: 1, Run: gone, Expired: &record.Expired{}})
	if err := d.Send(t.Context(), host.CoordinateQueue, events.Wakeup{Run: string(gone)}); err != nil {
		t.Fatal(err)
	}
	ms, err := d.Queues.Receive(t.Context(), host.CoordinateQueue, 10, time.Minute, 0)
	if err != nil || len(ms) != 1 {
		t.Fatal(ms, err)
	}
	done := d.coordinator().HandleBatch(t.Context(), ms)
	if len(done) != 1 || done[0] != ms[0].Receipt {
		t.Errorf("it acknowledges %q", done)
	}
	if dead := d.received(queue.DeadLetterQueue(host.CoordinateQueue)); len(dead) != 0 {
		t.Errorf("%v are dead letters", dead)
	}
}

func TestEventOfUnknownRunIsDeadLetteredWithoutDrainingItsSender(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 1)
	p := done(0, 2)
	p.Run = "01JD2ZQ4T5W0M1X9YB7R3K8CVZ"
	d.apply(d.coordinator(), p)
	if dead := d.received(queue.DeadLetterQueue(host.CoordinateQueue)); len(dead) != 1 {
		t.Errorf("dead letters %v", dead)
	}
	if m := hosttest.Load[record.WorkerMark](t, d.Ports, record.WorkerKey("w1")); m.DrainReason != "" {
		t.Errorf("its worker's mark is %+v", m)
	}
}

// A missing object of the plan is the store's fault, not the sender's.
func TestEventsAreRetriedWhileTheIndexCannotBeRead(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 2, 2)
	if err := d.Blobs.Delete(t.Context(), record.IndexKey(id, 0), ""); err != nil {
		t.Fatal(err)
	}
	if left := d.apply(d.coordinator(), look); left != 1 {
		t.Errorf("%d events left, want the one", left)
	}
	if dead := d.received(queue.DeadLetterQueue(host.CoordinateQueue)); len(dead) != 0 {
		t.Errorf("dead letters %v", dead)
	}
}

func TestMessagesThatAreNotForCoordinateAreDeadLettered(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 1)
	if err := d.Queues.Send(t.Context(), host.CoordinateQueue, [][]byte{[]byte("{}")}, 0); err != nil {
		t.Fatal(err)
	}
	d.send(events.Finalize{Run: string(id)}, events.Finalized{Run: string(id)}) // for another function; without a summary
	if left := d.batch(d.coordinator()); left != 0 {
		t.Errorf("%d events left", left)
	}
	if dead := d.received(queue.DeadLetterQueue(host.CoordinateQueue)); len(dead) != 3 {
		t.Errorf("dead letters %v", dead)
	}
}

func TestEventsOfRefusedRunAreAcknowledgedWithoutEffect(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 1, func(m *record.Manifest) { m.Refused = "no pool" })
	if left := d.apply(d.coordinator(), look, done(0, 1)); left != 0 {
		t.Errorf("%d events left", left)
	}
	if s := d.state(); s.Phase != "" || len(d.received(work)) != 0 {
		t.Errorf("the state is %+v", s)
	}
}
