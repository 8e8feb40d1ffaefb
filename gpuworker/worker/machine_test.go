package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/core/cost"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

const spotL4 = "g6.xlarge/spot"

// priced makes the worker's machine cost $3.60 an hour, a thousandth of a dollar a second. It
// was launched a minute before.
func priced(c *worker.Config) {
	c.Price = 3.6
	c.Machine = record.Machine{Kind: cost.KindOf(spotL4), Launched: time.Now().Add(-time.Minute)}
}

// submittedNow makes the present time that of the run's submission.
func (d *fixture) submittedNow() {
	d.t.Helper()
	m := hosttest.Load[record.Manifest](d.t, d.Ports, record.ManifestKey(run))
	m.CreatedAt = time.Now()
	hosttest.Save(d.t, d.Ports, record.ManifestKey(run), m)
}

func (d *fixture) use(n int) cost.Use { return d.shard(n).Counts.Machines[spotL4] }

func secs(u cost.Use) [3]float64 {
	return [3]float64{float64(u.Busy) / 1e6, float64(u.Boot) / 1e6, float64(u.Idle) / 1e6}
}

func TestCommitHasTheTimeOfTheMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 4)
		d.submittedNow()
		advance(30 * time.Second)
		tenSeconds := func(ctx context.Context, _ int) error { return answerAfter(ctx, 10*time.Second) }
		loaded := time.Now().Add(10 * time.Second)
		e := &fakeExecutor{answer: tenSeconds, ready: func() error {
			if time.Now().Before(loaded) {
				return fault.New(fault.Unavailable, "loading")
			}
			return nil
		}}
		d.start("w1", e, priced)
		advance(15 * time.Second) // it is ready after at least 10 s, and waits
		before := d.heartbeat("w1")
		if got := before.Unclaimed; before.Kind != spotL4 || before.Price != 3.6 || got.Micros() < 70e6 ||
			got.Micros() > 76e6 {
			t.Errorf("the heartbeat has %+v of %s, unclaimed", got, before.Kind)
		}
		d.sendWork(0)
		advance(5 * time.Second)
		if b := d.heartbeat("w1"); len(b.Holds) != 1 || b.Holds[0].Machine.Busy == 0 {
			t.Errorf("the heartbeat lists %+v", b.Holds)
		}
		advance(20 * time.Second)
		got := d.use(0)
		if s := secs(got); s[0] != 20 || s[1] < 40 || s[1] > 45 || s[2] < 1 || s[2] > 6 || s[1]+s[2] < 44 || s[1]+s[2] > 46 {
			t.Errorf("4 requests of 10 s, 2 at once, after a boot of some 40 s since the submission take %v", s)
		}
		if usd := got.USD(); usd < 0.064 || usd > 0.067 {
			t.Errorf("they cost $%g", usd)
		}
		done := d.coordinateEvents()[0].(events.ShardDone)
		if host.ShardCounts(done.Counts).Machines[spotL4] != got {
			t.Errorf("coordinate is told %+v, want %+v", done.Counts.Machines, got)
		}
	})
}

// TestReleasedShardKeepsTheTimeOfAllAttempts releases a shard without a new row, twice.
func TestReleasedShardKeepsTheTimeOfAllAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		for i, kind := range []string{"w1", "w2"} {
			w := d.start(kind, &fakeExecutor{answer: neverAnswer}, priced)
			d.send(host.WorkQueue("default"), events.Work{Run: string(run), Pool: "default", Generation: i})
			advance(10 * time.Second)
			w.Drain("test")
			advance(10 * time.Second)
			doc := d.shard(0)
			if got := secs(d.use(0)); doc.State != shard.Pending || got[0] < 10*float64(i+1) || got[0] > 19*float64(i+1) {
				t.Errorf("after attempt %d of 10 s: %v of %+v", i+1, got, doc)
			}
		}
	})
}

// TestTimeOfAVanishedHolderCounts kills a worker that has saved nothing.
func TestTimeOfAVanishedHolderCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		w := d.start("w1", &fakeExecutor{answer: neverAnswer}, priced)
		d.sendWork(0)
		advance(30 * time.Second)
		w.kill()
		reported := d.heartbeat("w1").Holds[0].Machine
		advance(time.Minute)
		d.start("w2", &fakeExecutor{}, priced)
		d.send(host.WorkQueue("default"), events.Work{Run: string(run), Pool: "default", Generation: 1})
		advance(time.Second)
		doc := d.shard(0)
		if got := d.use(0); doc.State != shard.Done || got.Busy < reported.Busy || reported.Busy < 29e6 ||
			got.Busy > reported.Busy+1e6 {
			t.Errorf("%+v, the last heartbeat said %+v", got, reported)
		}
	})
}

func TestMachinesWithoutAKindCountNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.start("w1", &fakeExecutor{})
		d.sendWork(0)
		advance(time.Second)
		b := d.heartbeat("w1")
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.Machines != nil || b.Kind != "" ||
			b.Unclaimed != (cost.Use{}) {
			t.Errorf("%+v, heartbeat %+v", doc, b)
		}
	})
}
