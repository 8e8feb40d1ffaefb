package coordinate_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/share"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

const second identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"

// addRun plans a second run of the pool.
func (d fixture) addRun(shards int, priority config.Priority) {
	d.t.Helper()
	m := inputtest.Manifest(2)
	m.Run = second
	m.CreatedAt = d.Clock.Now()
	m.Config.Scheduling.Priority = &priority
	m.Config.Limits.Deadline = config.Duration(time.Hour)
	inputtest.Plan(d.t, d.Ports, m, inputtest.Prompts(0, 2*shards))
}

// listed returns the entries of the pool's runs.
func (d fixture) listed() []share.Run {
	return hosttest.Load[share.Doc](d.t, d.Ports, record.ShareKey("default")).Runs
}

// beat writes the heartbeat of a living worker that holds shards of the second run.
func (d fixture) beat(worker string, held ...int) {
	b := health.Heartbeat{Schema: record.Schema, Worker: worker, Pool: "default", State: health.Ready, MaxInFlight: 1,
		At: d.Clock.Now(), DueAt: d.Clock.Now().Add(time.Hour)}
	for _, n := range held {
		b.Holds = append(b.Holds, health.HeldShard{Run: second, Shard: n, Attempt: 1})
	}
	hosttest.Save(d.t, d.Ports, record.HeartbeatKey(worker), b)
}

// shardsIn empties a queue and returns the shards of the run in it.
func (d fixture) shardsOf(q string, of identity.RunID) (out []int) {
	for _, p := range d.received(q) {
		if w := p.(events.Work); w.Run == string(of) {
			out = append(out, w.Shard)
		}
	}
	return out
}

func TestPoolListsItsOpenRuns(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 2)
	c := d.coordinator()
	d.apply(c, look)
	if got := d.listed(); len(got) != 1 || got[0].Run != id || got[0].Weight != config.PriorityNormal || !got[0].Sent {
		t.Fatalf("listed: %+v", got)
	}
	d.addRun(40, 7)
	d.apply(c, events.Wakeup{Run: string(second)})
	got := d.listed()
	if len(got) != 2 || got[1].Run != second || got[1].Weight != 7 || got[1].Sent ||
		!got[1].Deadline.Equal(got[1].Created.Add(time.Hour)) {
		t.Fatalf("listed: %+v", got)
	}
	d.apply(c, done(0, 2))
	if got := d.listed(); len(got) != 1 || got[0].Run != second {
		t.Errorf("after the end of the first run: %+v", got)
	}
}

func TestPausedRunIsNotListed(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	c := d.coordinator()
	d.apply(c, look)
	hosttest.Save(t, d.Ports, record.ControlKey(id),
		record.Control{Schema: record.Schema, Sequence: 1, Desired: record.DesiredPause})
	d.apply(c, look)
	if got := d.listed(); len(got) != 0 {
		t.Errorf("paused: %+v", got)
	}
	hosttest.Save(t, d.Ports, record.ControlKey(id),
		record.Control{Schema: record.Schema, Sequence: 2, Desired: record.DesiredRun})
	d.apply(c, look)
	if got := d.listed(); len(got) != 1 {
		t.Errorf("resumed: %+v", got)
	}
}

// failingShares is a store whose documents of shares can't be written.
type failingShares struct{ document.Store }

func (s failingShares) Replace(ctx context.Context, key string, v []byte,
	rev document.Revision) (document.Revision, error) {
	if key == record.ShareKey("default") {
		return "", fault.New(fault.Unavailable, "the store is down")
	}
	return s.Store.Replace(ctx, key, v, rev)
}

// A coordinator crashes after it has saved that the run finalizes, and before it takes the
// run off the list. The next one does, before the run can end.
func TestRunIsTakenOffTheListAfterACrash(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 2)
	d.apply(d.coordinator(), look)
	p := d.Ports
	p.Docs = failingShares{d.Docs}
	if left := d.apply(newCoordinator(p, coordinate.Options{}), done(0, 2)); left != 1 {
		t.Fatalf("%d events are left, want the one whose step failed", left)
	}
	if got := d.listed(); len(got) != 1 {
		t.Fatalf("listed: %+v", got)
	}
	d.apply(d.coordinator(), look)
	if got := d.listed(); len(got) != 0 {
		t.Errorf("after the crash: %+v", got)
	}
}

// A run that finds another one in its pool sends two shards a worker, and all of them to
// the queue that workers ask first. It sends the next one when one is done, and more if one
// worker holds all.
func TestRunThatSharesItsPoolSendsFewAndUrgentShards(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 300, 2)
	c := d.coordinator()
	d.beat("w1")
	d.beat("w2")
	d.apply(c, look)
	if n := len(d.shardsOf(work, id)); n != 256 {
		t.Fatalf("alone, the run sends %d shards", n)
	}
	d.addRun(40, config.PriorityNormal)
	wake := events.Wakeup{Run: string(second)}
	d.apply(c, wake)
	if got := d.shardsOf(urgent, second); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Fatalf("the second run sends %v", got)
	}
	if n := len(d.received(work)); n != 0 {
		t.Fatalf("%d shards are in the work queue", n)
	}
	d.beat("w1", 0, 1)
	d.beat("w2", 2)
	d.apply(c, wake)
	if got := d.received(urgent); len(got) != 0 {
		t.Errorf("nothing is done, and it sends %v", got)
	}
	d.apply(c, events.ShardDone{Run: string(second), Shard: 0, Attempt: 1, Worker: "w1", Counts: events.Counts{OK: 2}})
	if got := d.shardsOf(urgent, second); !slices.Equal(got, []int{4}) {
		t.Errorf("one is done, and it sends %v", got)
	}
	d.beat("w1", 1, 2, 3, 4)
	d.beat("w2")
	d.apply(c, wake)
	if got := d.shardsOf(urgent, second); !slices.Equal(got, []int{5, 6}) {
		t.Errorf("one worker holds all, and it sends %v for the other", got)
	}
}

// A run that has its pool alone again sends to the work queue.
func TestRunIsAloneAfterTheOtherHasEnded(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, 2)
	c := d.coordinator()
	d.beat("w1")
	d.apply(c, look)
	d.addRun(40, config.PriorityLow)
	d.apply(c, events.Wakeup{Run: string(second)})
	if n := len(d.shardsOf(urgent, second)); n != 2 {
		t.Fatalf("it sends %d shards for one worker", n)
	}
	d.apply(c, done(0, 2))
	d.apply(c, events.Wakeup{Run: string(second)})
	if n := len(d.shardsOf(host.WorkQueue("default"), second)); n != 38 {
		t.Errorf("alone, it sends %d shards", n)
	}
}
