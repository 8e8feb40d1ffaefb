package coordinate_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const id = inputtest.RunID

// fixture is a set of stores with one planned run.
type fixture struct {
	host.Ports
	t *testing.T
}

func newFixture(t *testing.T, shards, items int, edit ...func(*record.Manifest)) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.Manifest(items)
	for _, f := range edit {
		f(&m)
	}
	inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, shards*items))
	return d
}

// coordinator returns a coordinator that remembers nothing yet.
func (d fixture) coordinator() *coordinate.Coordinator {
	return newCoordinator(d.Ports, coordinate.Options{})
}

// shared returns one of several coordinators of the same runs.
func (d fixture) shared() *coordinate.Coordinator {
	return newCoordinator(d.Ports, coordinate.Options{Shared: true})
}

func newCoordinator(p host.Ports, o coordinate.Options) *coordinate.Coordinator {
	o.Timings, o.Grace = host.Timings(config.DefaultDeployment().Health), 10*time.Second
	return coordinate.New(p, input.NewIndex(p.Blobs, p.Docs), o)
}

// apply gives the coordinator a batch of these events, and acknowledges those
// that it is done with. It returns how many are left.
func (d fixture) apply(c *coordinate.Coordinator, ps ...events.Payload) (left int) {
	d.t.Helper()
	d.send(ps...)
	return d.batch(c)
}

func (d fixture) send(ps ...events.Payload) {
	d.t.Helper()
	if err := d.Send(d.t.Context(), host.CoordinateQueue, ps...); err != nil {
		d.t.Fatal(err)
	}
}

func (d fixture) batch(c *coordinate.Coordinator) (left int) {
	d.t.Helper()
	ms, err := d.Queues.Receive(d.t.Context(), host.CoordinateQueue, 1000, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	done := c.HandleBatch(d.t.Context(), ms)
	if err := d.Queues.Ack(d.t.Context(), host.CoordinateQueue, done); err != nil {
		d.t.Fatal(err)
	}
	return len(ms) - len(done)
}

func (d fixture) state() run.State {
	return hosttest.Load[run.State](d.t, d.Ports, record.CoordinatorKey(id))
}

func (d fixture) control() record.Control {
	return hosttest.Load[record.Control](d.t, d.Ports, record.ControlKey(id))
}

// received empties a queue.
func (d fixture) received(q string) (out []events.Payload) {
	d.t.Helper()
	ms, err := d.Queues.Receive(d.t.Context(), q, 1000, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range ms {
		_, p, _ := events.Decode(m.Body)
		out = append(out, p)
		_ = d.Queues.Ack(d.t.Context(), q, []string{m.Receipt})
	}
	return out
}

var (
	look = events.Wakeup{Run: string(id)}
	work = host.WorkQueue("default")

	urgent = host.UrgentQueue("default")
)

func done(n, ok int) events.ShardDone {
	return events.ShardDone{Run: string(id), Shard: n, Attempt: 1, Worker: "w1", Counts: events.Counts{OK: ok}}
}

// I8: an event at the end of a long chain makes coordinate send nothing. A
// timer's wake-up starts a new chain and does what is left to do, alone or in
// the same batch.
func TestLongChainOfEventsEndsAtCoordinate(t *testing.T) {
	t.Parallel()
	far := func(d fixture) {
		meta := events.Meta{Source: "rollout/test", Time: time.Now(), Hops: events.MaxHops}
		b, err := events.Encode(events.PlanAdvanced{Run: string(id)}, meta)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Queues.Send(t.Context(), host.CoordinateQueue, [][]byte{b}, 0); err != nil {
			t.Fatal(err)
		}
	}
	d := newFixture(t, 3, 2)
	c := d.coordinator()
	far(d)
	if left := d.batch(c); left != 0 || len(d.received(work)) != 0 {
		t.Errorf("%d events are left", left)
	}
	if n := len(d.received(queue.DeadLetterQueue(host.CoordinateQueue))); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	d.apply(c, look)
	if n := len(d.received(work)); n != 3 {
		t.Errorf("%d shards sent after a wake-up, want 3", n)
	}

	d = newFixture(t, 3, 2)
	far(d)
	if left := d.apply(d.coordinator(), look); left != 0 || len(d.received(work)) != 3 {
		t.Error("with a wake-up in the batch it sends nothing")
	}
}

// chain is the context key of the message whose chain a step continues.
type chain struct{}

// chainQueues note by which message the work of each run was sent.
type chainQueues struct {
	queue.Queues
	sent map[string]string // by run
}

func (q chainQueues) Send(ctx context.Context, to string, bodies [][]byte, delay time.Duration) error {
	for _, b := range bodies {
		if _, p, _ := events.Decode(b); to == work || to == urgent {
			q.sent[p.(events.Work).Run], _ = ctx.Value(chain{}).(string)
		}
	}
	return q.Queues.Send(ctx, to, bodies, delay)
}

// I8: what a run's step sends continues the chain of a message of that run, the one
// with the fewest hops, and not those of other runs in the batch.
func TestStepContinuesTheChainOfItsOwnRun(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	const other = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"
	m := inputtest.Manifest(2)
	m.Run = other
	inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 6))
	var ms []queue.Message
	for _, of := range []struct {
		run, name string
		hops      int
	}{{string(id), "far", 7}, {other, "far of the other", 6}, {string(id), "near", 2}, {string(id), "between", 3}} {
		meta := events.Meta{Source: "rollout/test", Time: time.Now(), Hops: of.hops}
		body, err := events.Encode(events.PlanAdvanced{Run: of.run}, meta)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, queue.Message{ID: of.name, Body: body, Receipt: of.name})
	}
	sent := map[string]string{}
	p := d.Ports
	p.Queues = chainQueues{d.Queues, sent}
	c := newCoordinator(p, coordinate.Options{StepContext: func(ctx context.Context, m queue.Message) context.Context {
		return context.WithValue(ctx, chain{}, m.ID)
	}})
	if done := c.HandleBatch(t.Context(), ms); len(done) != len(ms) {
		t.Errorf("done is %v", done)
	}
	if want := map[string]string{string(id): "near", other: "far of the other"}; !maps.Equal(sent, want) {
		t.Errorf("work is sent in the chains %v, want %v", sent, want)
	}
}

func TestLostShardIsSentToTheUrgentQueue(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	c := d.coordinator()
	d.apply(c, look)
	d.received(work)
	d.apply(c, events.ShardLost{Run: string(id), Shard: 1, Worker: "w1"})
	if n := len(d.received(work)); n != 0 {
		t.Errorf("%d messages in the work queue", n)
	}
	again := d.received(host.UrgentQueue("default"))
	if len(again) != 1 || again[0].(events.Work).Shard != 1 || again[0].(events.Work).Generation != 1 {
		t.Errorf("sent again: %+v", again)
	}
}

// Reclaim reports a lost shard at every scan until it is sent again. The
// observability event appears once.
func TestLostShardIsObservedOnce(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	var observed bytes.Buffer
	d.Watch.Events = observe.NewEmitter(&observed, d.Clock, d.Log)
	c := d.coordinator()
	d.apply(c, look)
	lost := events.ShardLost{Run: string(id), Shard: 1, Worker: "w1", Reason: "holder_dead"}
	d.apply(c, lost, lost)
	d.apply(c, lost) // late
	const want = `"shard":1,"generation":0,"reason":"holder_dead"`
	if got := observed.String(); strings.Count(got, `"shard_lost"`) != 1 || !strings.Contains(got, want) {
		t.Errorf("observed:\n%s", got)
	}
}

func TestRunIsDispatchedCountedAndFinalized(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	c := d.coordinator()
	if left := d.apply(c, look); left != 0 {
		t.Fatalf("%d events left", left)
	}
	for i, p := range d.received(work) {
		if w := p.(events.Work); w.Shard != i || w.Row != i || w.Range != 0 || w.Generation != 0 || w.Pool != "default" {
			t.Errorf("message %d is %+v", i, w)
		}
	}
	d.apply(c, done(2, 2), done(0, 2), done(0, 2), done(1, 2))
	if s := d.state(); s.Phase != run.Finalizing || s.Counts.OK != 6 {
		t.Errorf("the run is %s, counts %+v", s.Phase, s.Counts)
	}
	if got := d.received(host.TaskQueue); !slices.Equal(got, []events.Payload{events.Finalize{Run: string(id)}}) {
		t.Errorf("asked for %v", got)
	}
	sum := record.Summary{Schema: 1, Run: id, Completed: 5, Failed: 1, FailedByClass: map[string]int{"refused": 1}}
	hosttest.Put(t, d.Ports, record.OutputKey(id, record.SummaryFile), string(record.Encode(sum)))
	d.apply(c, events.Finalized{Run: string(id)})
	if s := d.state(); s.Phase != run.CompletedWithErrors || s.Counts.OK != 5 || s.Counts.Failed != 1 {
		t.Errorf("the run is %s, counts %+v: the summary decides", s.Phase, s.Counts)
	}
}

// The summary of a child counts the finish reasons of its own answers alone.
func TestCountsOfAnEndedChildHaveTheFinishReasonsOfItsSummary(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	c := d.coordinator()
	d.apply(c, look)
	d.apply(c, done(0, 2), done(1, 2), done(2, 2))
	want := map[string]int{"stop": 2, "length": 1}
	sum := record.Summary{Schema: 1, Run: id, Completed: 6, FinishReasons: want}
	hosttest.Put(t, d.Ports, record.OutputKey(id, record.SummaryFile), string(record.Encode(sum)))
	d.apply(c, events.Finalized{Run: string(id)})
	if diff := cmp.Diff(want, d.state().Counts.FinishReasons(0)); diff != "" {
		t.Errorf("the 3 rows that it keeps have no finish reason here (-want +got):\n%s", diff)
	}
}

// A coordinator that remembers an old state finds out even if its own step
// changes nothing.
func TestStepWithoutChangesDetectsStaleState(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 2, 2)
	stale, fresh := d.coordinator(), d.coordinator()
	d.apply(stale, look)
	d.apply(fresh, done(0, 2))
	d.apply(stale, done(1, 2)) // its save conflicts; it loads again and finds both
	if s := d.state(); s.Phase != run.Finalizing || s.Counts.OK != 4 {
		t.Fatalf("the run is %s, counts %+v", s.Phase, s.Counts)
	}
	sum := record.Summary{Schema: 1, Run: id, Completed: 4}
	hosttest.Put(t, d.Ports, record.OutputKey(id, record.SummaryFile), string(record.Encode(sum)))
	// fresh remembers a running run, in which Finalized changes nothing.
	d.apply(fresh, events.Finalized{Run: string(id)})
	if s := d.state(); s.Phase != run.Completed {
		t.Errorf("the run is %s", s.Phase)
	}
}

func TestInheritedEffectsArePerformedFirst(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	broken := d.Ports
	broken.Queues = failingQueues{d.Queues}
	if left := d.apply(newCoordinator(broken, coordinate.Options{}), look); left != 1 {
		t.Fatalf("%d events left, want the one whose effects could not be performed", left)
	}
	if n := len(d.received(work)); n != 0 {
		t.Fatalf("%d messages", n)
	}
	if s := d.state(); s.NextShard != 3 || len(s.Effects) == 0 {
		t.Fatalf("the state is %+v", s)
	}
	d.apply(d.coordinator(), done(0, 2))
	if n := len(d.received(work)); n != 3 {
		t.Errorf("%d messages, want the three of the inherited effects", n)
	}
}

// failingQueues cannot be sent to.
type failingQueues struct{ queue.Queues }

func (failingQueues) Send(context.Context, string, [][]byte, time.Duration) error {
	return fault.New(fault.Unavailable, "the queue is down")
}

// Seals count the items of a checkpoint by their rows, and all others under the
// class of the run's end.
func TestSealCountsEachItemOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 4, 3)
		c := d.coordinator()
		d.apply(c, look)
		save := func(n int, doc shard.Doc) {
			doc.Schema, doc.Run, doc.Shard = 1, id, n
			hosttest.Save(t, d.Ports, identity.ShardKey(id, n), doc)
		}
		save(0, shard.Doc{State: shard.Done, Counts: shard.Counts{OK: 3}, Items: 3, Worker: "w1"}) // its event is lost
		save(1, shard.Doc{State: shard.Running, Worker: "w1", Attempt: 1, Checkpoint: &shard.Ref{Key: "work/x"},
			Counts: shard.Counts{OK: 1, Failed: 1, ByClass: map[string]int{"refused": 1}}})
		save(2, shard.Doc{State: shard.Pending, Attempt: 1})
		hosttest.Save(t, d.Ports, record.ControlKey(id),
			record.Control{Schema: 1, Sequence: 1, Desired: record.DesiredEnd, Reason: "stopped", Text: "enough"})
		d.apply(c, look)
		if s := d.state(); s.Phase != run.Ending || s.Message != "enough" {
			t.Fatalf("the run is %s: %q", s.Phase, s.Message)
		}
		<-time.After(time.Minute)
		d.apply(c, look)
		s := d.state()
		if s.Phase != run.Finalizing || s.Counts.OK != 4 || s.Counts.Failed != 8 ||
			s.Counts.ByClass["canceled"] != 7 || s.Counts.ByClass["refused"] != 1 {
			t.Errorf("the run is %s, counts %+v", s.Phase, s.Counts)
		}
		doc := hosttest.Load[shard.Doc](t, d.Ports, identity.ShardKey(id, 3))
		if doc.State != shard.Done || doc.Sealed != fault.CanceledItem || doc.Items != 3 {
			t.Errorf("shard 3 is %+v", doc)
		}
		doc = hosttest.Load[shard.Doc](t, d.Ports, identity.ShardKey(id, 1))
		if doc.Checkpoint == nil || doc.Worker != "w1" {
			t.Errorf("shard 1 is %+v", doc)
		}
	})
}

func TestOwnPauseOrEndDoesNotUndoUsersControl(t *testing.T) {
	t.Parallel()
	pause := run.Effects{{Kind: run.SetPause, Why: "the input is gone"}}
	end := run.Effects{{Kind: run.SetEnd, Why: "budget"}}
	control := func(sequence uint64, desired record.Desired) record.Control {
		return record.Control{Sequence: sequence, Desired: desired}
	}
	stopped := record.Control{Sequence: 1, Desired: record.DesiredEnd, Reason: "stopped"}
	for name, c := range map[string]struct {
		effects run.Effects
		acted   uint64 // the control sequence that the state had acted on
		given   record.Control
		want    record.Desired
		seq     uint64
	}{
		"pause without earlier control":       {pause, 0, record.Control{}, record.DesiredPause, 1},
		"pause after a resume acted on":       {pause, 2, control(2, record.DesiredRun), record.DesiredPause, 3},
		"pause repeated after a newer resume": {pause, 2, control(4, record.DesiredRun), record.DesiredRun, 4},
		"pause after the user ended the run":  {pause, 0, stopped, record.DesiredEnd, 1},
		"pause already desired":               {pause, 1, control(1, record.DesiredPause), record.DesiredPause, 1},
		"end of a paused run":                 {end, 0, control(1, record.DesiredPause), record.DesiredEnd, 2},
		"end after the user ended the run":    {end, 0, stopped, record.DesiredEnd, 1},
	} {
		d := newFixture(t, 1, 1)
		s := run.New(id)
		s.Phase, s.Control, s.Effects = run.Pausing, c.acted, c.effects
		hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
		c.given.Schema = 1
		hosttest.Save(t, d.Ports, record.ControlKey(id), c.given)
		d.apply(d.coordinator(), look)
		if got := d.control(); got.Desired != c.want || got.Sequence != c.seq {
			t.Errorf("%s: control is %s, sequence %d; want %s, %d", name, got.Desired, got.Sequence, c.want, c.seq)
		}
	}
}

// A run is paused when every living worker of the pool that holds its shards has
// acted on the pause.
func TestPauseWaitsForLivingHoldersOfThePool(t *testing.T) {
	t.Parallel()
	held := []health.HeldShard{{Run: id, Shard: 0, Attempt: 1}}
	holder := health.Heartbeat{Worker: "w1", Pool: "default", Holds: held}
	with := func(change func(*health.Heartbeat)) health.Heartbeat {
		b := holder
		change(&b)
		return b
	}
	acted := func(sequence uint64) health.Heartbeat {
		return with(func(b *health.Heartbeat) { b.Control = map[identity.RunID]uint64{id: sequence} })
	}
	for name, c := range map[string]struct {
		beat health.Heartbeat
		want run.Phase
	}{
		"worker without shards":     {with(func(b *health.Heartbeat) { b.Holds = nil }), run.Paused},
		"holder that has not acted": {holder, run.Pausing},
		"holder that has acted":     {acted(1), run.Paused},
		"holder that is gone":       {with(func(b *health.Heartbeat) { b.State = health.Gone }), run.Paused},
		"holder of another pool":    {with(func(b *health.Heartbeat) { b.Pool = "other" }), run.Paused},
		"holder of another run": {with(func(b *health.Heartbeat) {
			b.Holds = []health.HeldShard{{Run: "x"}}
		}), run.Paused},
		"holder that has acted on an older pause": {acted(0), run.Pausing},
		"dead holder": {with(func(b *health.Heartbeat) { b.At = time.Unix(1, 0) }), run.Paused},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t, 2, 1)
			timings := host.Timings(config.DefaultDeployment().Health)
			c2 := d.coordinator()
			d.apply(c2, look)
			hosttest.Save(t, d.Ports, record.ControlKey(id),
				record.Control{Schema: 1, Sequence: 1, Desired: record.DesiredPause})
			d.apply(c2, look)
			<-time.After(5 * time.Second)
			if c.beat.At.IsZero() {
				c.beat.At = time.Now()
			}
			c.beat.Schema, c.beat.DueAt = 1, timings.Due(c.beat.At)
			hosttest.Save(t, d.Ports, record.HeartbeatKey("w1"), c.beat)
			d.apply(c2, look)
			if s := d.state(); s.Phase != c.want {
				t.Errorf("%s: the run is %s, want %s", name, s.Phase, c.want)
			}
		})
	}
}

func TestCoordinatorIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const shards = 40
	d := newFixture(t, shards, 1)
	c := d.coordinator()
	d.apply(c, look)
	var all sync.WaitGroup
	for n := range shards {
		all.Go(func() {
			counts := shard.Counts{OK: 1, ByClass: map[string]int{fmt.Sprint(n): 1}}
			ev := run.Event{Kind: run.ShardDone, Shard: n, Counts: counts}
			for {
				_, err := c.Apply(t.Context(), id, []run.Event{ev})
				if !fault.Is(err, fault.Unavailable) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	all.Wait()
	if s := d.state(); s.Counts.OK != shards || s.Done.Frontier() != shards {
		t.Errorf("counts %+v, frontier %d", s.Counts, s.Done.Frontier())
	}
}

// The receiver of OnSent adds what it is told, so that several steps of a call, here with work
// that another process has not sent and with a lost shard, tell the demand of the last one once.
func TestOnSentIsCalledOnceForSeveralSteps(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	broken := d.Ports
	broken.Queues = failingQueues{d.Queues}
	if left := d.apply(newCoordinator(broken, coordinate.Options{}), look); left != 1 {
		t.Fatalf("%d events left, want the one whose effects could not be performed", left)
	}
	var calls []string
	c := newCoordinator(d.Ports, coordinate.Options{Hooks: coordinate.Hooks{
		OnSent: func(pool string, n scaling.Demand) { calls = append(calls, fmt.Sprint(pool, " ", n.OpenShards)) },
	}})
	d.apply(c, done(1, 2), events.ShardLost{Run: string(id), Shard: 0, Worker: "w1"})
	if urgent := d.received(host.UrgentQueue("default")); len(urgent) != 1 || len(d.received(work)) == 0 {
		t.Errorf("sent %v at once, want the lost shard, after the inherited work", urgent)
	}
	if want := []string{"default 2"}; !slices.Equal(calls, want) {
		t.Errorf("called with %v, want %v", calls, want)
	}
}

// OnSent reports the open shards whenever some are sent, and at no other event.
func TestOnSentIsCalledWhenWorkIsSent(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	var calls []string
	c := newCoordinator(d.Ports, coordinate.Options{Hooks: coordinate.Hooks{
		OnSent: func(pool string, n scaling.Demand) { calls = append(calls, fmt.Sprint(pool, " ", n.OpenShards)) },
	}})
	for _, step := range []struct {
		event events.Payload
		want  []string
	}{
		{look, []string{"default 3"}},
		{look, nil},
		{done(1, 2), nil},
		{events.ShardLost{Run: string(id), Shard: 0, Worker: "w1"}, []string{"default 2"}},
		{done(0, 2), nil},
		{done(2, 2), nil},
	} {
		calls = nil
		d.apply(c, step.event)
		if !slices.Equal(calls, step.want) {
			t.Errorf("%+v: called with %v, want %v", step.event, calls, step.want)
		}
	}
}
