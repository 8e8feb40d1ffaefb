package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

var work = host.WorkQueue("default")

func TestMessageIsAcknowledgedWhenClaimHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 3)
		d.start("w1", &fakeExecutor{answer: neverAnswer})
		d.sendWork(0)
		advance(50 * time.Millisecond)
		if doc := d.shard(0); doc.State != shard.Running || doc.Worker != "w1" || doc.Attempt != 1 {
			t.Errorf("the shard is %+v", doc)
		}
		if n := d.queued(work); n != 0 {
			t.Errorf("%d messages are still in the queue", n)
		}
		advance(time.Second)
		if b := d.heartbeat("w1"); !b.HoldsClaim(run, 0, 1) || b.State != health.Ready {
			t.Errorf("the heartbeat does not list the shard: %+v", b)
		}
	})
}

func TestMessageIsRedeliveredWhenClaimFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 3)
		d.stores.failWith(func(c call) error {
			if c.what == "write" && c.key == identity.ShardKey(run, 0) {
				return fault.New(fault.Unavailable, "the store is down")
			}
			return nil
		})
		d.start("w1", &fakeExecutor{})
		d.sendWork(0)
		synctest.Wait()
		if n := d.queued(work); n != 1 {
			t.Fatalf("%d messages left, want the one", n)
		}
		d.stores.failWith(nil)
		advance(3 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

// TestClaimByShardAndHolderState covers the worker's side of the rules for work
// messages.
func TestClaimByShardAndHolderState(t *testing.T) {
	t.Parallel()
	at := func(age time.Duration) time.Time { return time.Now().Add(-age).UTC() }
	held := func(attempt uint64) func(*fixture) {
		return func(d *fixture) {
			hosttest.Save(d.t, d.Ports, identity.ShardKey(run, 0), shard.Doc{Schema: 1, Run: run, State: shard.Running,
				Attempt: attempt, Worker: "other", ClaimedAt: at(time.Minute)})
		}
	}
	heartbeat := func(state health.State, age time.Duration, holds ...health.HeldShard) func(*fixture) {
		return func(d *fixture) {
			timings := health.Timings{Interval: 500 * time.Millisecond}
			hosttest.Save(d.t, d.Ports, record.HeartbeatKey("other"), health.Heartbeat{Schema: 1, Worker: "other",
				State: state, At: at(age), DueAt: timings.Due(at(age)), Holds: holds})
		}
	}
	control := func(what record.Desired) func(*fixture) {
		return func(d *fixture) { d.setControl(1, what, "stopped") }
	}
	digest := identity.Content(nil).String()
	done := func(d *fixture) {
		hosttest.Save(d.t, d.Ports, identity.ShardKey(run, 0), shard.Doc{Schema: 1, Run: run, State: shard.Done,
			Attempt: 7, Worker: "other", Counts: shard.Counts{OK: 3},
			Result: &shard.Ref{Key: "work/x", Length: 1, Digest: digest}})
	}
	mine := health.HeldShard{Run: run, Shard: 0, Attempt: 7}
	type given = []func(*fixture)
	for name, c := range map[string]struct {
		given   given
		attempt uint64 // of the shard afterwards
		claimed bool
		reports bool // ShardDone is sent
	}{
		"pending shard":                      {nil, 1, true, false},
		"done shard is reported again":       {given{done}, 7, false, true},
		"holder alive":                       {given{held(7), heartbeat(health.Ready, 0, mine)}, 7, false, false},
		"holder dead since before the claim": {given{held(7), heartbeat(health.Ready, 2*time.Minute)}, 8, true, false},
		"dead holder that lists the shard": {
			given{held(7), heartbeat(health.Ready, time.Minute, mine)}, 8, true, false},
		"holder without a heartbeat":              {given{held(7)}, 8, true, false},
		"holder has deregistered":                 {given{held(7), heartbeat(health.Gone, 0)}, 8, true, false},
		"newer heartbeat does not list the shard": {given{held(7), heartbeat(health.Ready, 0)}, 8, true, false},
		"heartbeat lists another attempt":         {given{held(8), heartbeat(health.Ready, 0, mine)}, 9, true, false},
		"run paused":                              {given{control(record.DesiredPause)}, 0, false, false},
		"run ends":                                {given{control(record.DesiredEnd)}, 0, false, false},
		"run resumed":                             {given{control(record.DesiredRun)}, 1, true, false},
		"holder alive and run paused": {
			given{held(7), heartbeat(health.Ready, 0, mine), control(record.DesiredPause)}, 7, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 3)
				for _, f := range c.given {
					f(d)
				}
				e := &fakeExecutor{answer: neverAnswer}
				d.send(work, events.Work{Run: string(run), Pool: "default"})
				d.start("w1", e)
				advance(50 * time.Millisecond)
				if n := d.queued(work); n != 0 {
					t.Errorf("%d messages are left, want it acknowledged", n)
				}
				doc := d.shard(0)
				if claimed := doc.Worker == "w1"; claimed != c.claimed || doc.Attempt != c.attempt {
					t.Errorf("the shard is %s, held by %q, attempt %d; want claimed %v, attempt %d",
						doc.State, doc.Worker, doc.Attempt, c.claimed, c.attempt)
				}
				if asked := len(e.askedItems()) > 0; asked != c.claimed {
					t.Errorf("the engine was asked: %v", asked)
				}
				sent := d.coordinateEvents()
				if reports := len(sent) == 1; reports != c.reports {
					t.Fatalf("coordinate was sent %v", sent)
				}
				if c.reports {
					want := events.ShardDone{Run: string(run), Shard: 0, Attempt: 7, Worker: "other",
						Counts: events.Counts{OK: 3}, Digest: digest}
					if got := sent[0].(events.ShardDone); got.Attempt != want.Attempt || got.Worker != want.Worker ||
						got.Counts.OK != want.Counts.OK || got.Digest != want.Digest {
						t.Errorf("the event is %+v, want %+v", got, want)
					}
				}
			})
		})
	}
}

func TestUndecodableMessageIsDeadLettered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 3)
		for _, body := range []string{"{", `{"specversion":"1.0"}`, "null"} {
			if err := d.stores.queues.Send(t.Context(), work, [][]byte{[]byte(body)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		d.send(work, events.Wakeup{Run: string(run)})
		d.start("w1", &fakeExecutor{})
		synctest.Wait()
		if left, dead := d.queued(work), d.queued(queue.DeadLetterQueue(work)); left != 0 || dead != 4 {
			t.Errorf("%d messages left, %d dead letters; want 0 and 4", left, dead)
		}
	})
}

func TestShardWithWrongTableRowIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 3)
		e := &fakeExecutor{}
		d.send(work, events.Work{Run: string(run), Shard: 0, Row: 1, Pool: "default"})
		d.start("w1", e)
		synctest.Wait()
		if doc := d.shard(0); doc.State != shard.Pending || len(e.askedItems()) != 0 {
			t.Errorf("shard 0 is %s, and items %v were asked", doc.State, e.askedItems())
		}
		if sent := d.coordinateEvents(); len(sent) != 1 || sent[0].(events.ShardReleased).Shard != 0 {
			t.Errorf("coordinate was sent %v, want a release of the shard", sent)
		}
	})
}

func TestOneOfTwoWorkersClaimsEachShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 8, 2)
		e := &fakeExecutor{}
		for n := range 8 {
			d.sendWork(n, n)
		}
		d.start("w1", e)
		d.start("w2", e)
		advance(10 * time.Second)
		for n := range 8 {
			if doc := d.shard(n); doc.State != shard.Done || doc.Attempt != 1 {
				t.Errorf("shard %d: %+v", n, doc)
			}
		}
		if n := len(e.askedItems()); n != 16 {
			t.Errorf("%d requests for 16 items", n)
		}
	})
}

// A message that arrives while this worker releases the shard must not be
// acknowledged: it may be the only one left.
func TestMessageDuringReleaseIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		first := true
		e := &fakeExecutor{}
		e.fail = func() error {
			if !first {
				return nil
			}
			first = false
			return fault.New(fault.Unavailable, "the engine is down")
		}
		e.answer = func(context.Context, int) error {
			if first {
				return fault.New(fault.Unavailable, "the engine is down")
			}
			return nil
		}
		d.stores.failWith(func(c call) error {
			if c.what == "send" && c.key == host.CoordinateQueue && first == false && d.shard(0).State == shard.Pending {
				<-time.After(2 * time.Second) // the report is slow
			}
			return nil
		})
		d.sendWork(0)
		d.start("w1", e)
		advance(time.Second)
		d.sendWork(0)
		advance(10 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done {
			t.Errorf("the shard is %s after a minute, and %d messages are left", doc.State, d.queued(work))
		}
	})
}

func TestI9PausedRunIsNotClaimedWithLongHeartbeatInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		d.sendWork(0)
		d.start("w1", &fakeExecutor{}, func(c *worker.Config) {
			c.Timings = health.Timings{Interval: 20 * time.Second, SelfFence: 80 * time.Second,
				FailureTimeout: 100 * time.Second, SkewBudget: 2 * time.Second}
		})
		synctest.Wait()
		d.setControl(1, record.DesiredPause, "maintenance")
		advance(6 * time.Second)
		d.sendWork(1)
		synctest.Wait()
		if doc := d.shard(1); doc.State != shard.Pending {
			t.Errorf("shard 1 was claimed 6 s after the pause: %+v", doc)
		}
	})
}
