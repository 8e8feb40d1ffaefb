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
	"rollout/shared/input/inputtest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

var work = host.WorkQueue("default")

func TestAMessageIsAcknowledgedAsSoonAsItsClaimHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 3)
		d.start("w1", &engine{answer: stuck})
		d.offer(0)
		pass(50 * time.Millisecond)
		if doc := d.shard(0); doc.State != shard.Running || doc.Worker != "w1" || doc.Attempt != 1 {
			t.Errorf("the shard is %+v", doc)
		}
		if n := d.waiting(work); n != 0 {
			t.Errorf("%d messages are still in the queue", n)
		}
		pass(time.Second)
		if b := d.beat("w1"); !b.HoldsClaim(run, 0, 1) || b.State != health.Ready {
			t.Errorf("the heartbeat does not speak for the shard: %+v", b)
		}
	})
}

func TestAMessageWhoseClaimFailsComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 3)
		d.stores.failing(func(c call) error {
			if c.what == "write" && c.key == identity.ShardKey(run, 0) {
				return fault.New(fault.Unavailable, "the store is down")
			}
			return nil
		})
		d.start("w1", &engine{})
		d.offer(0)
		synctest.Wait()
		if n := d.waiting(work); n != 1 {
			t.Fatalf("%d messages left, want the one", n)
		}
		d.stores.failing(nil)
		pass(3 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

// TestWhatBecomesOfAMessage is the worker's side of the table of work messages
// in the design.
func TestWhatBecomesOfAMessage(t *testing.T) {
	t.Parallel()
	at := func(age time.Duration) time.Time { return time.Now().Add(-age).UTC() }
	held := func(attempt uint64) func(*fixture) {
		return func(d *fixture) {
			inputtest.Save(d.t, d.Ports, identity.ShardKey(run, 0), shard.Doc{Schema: 1, Run: run, State: shard.Running,
				Attempt: attempt, Worker: "other", ClaimedAt: at(time.Minute), Term: 3})
		}
	}
	beats := func(state health.State, age time.Duration, holds ...health.HeldShard) func(*fixture) {
		return func(d *fixture) {
			timings := health.Timings{Interval: 500 * time.Millisecond}
			inputtest.Save(d.t, d.Ports, record.HeartbeatKey("other"), health.Heartbeat{Schema: 1, Worker: "other", State: state,
				At: at(age), DueAt: timings.Due(at(age)), Holds: holds})
		}
	}
	control := func(what record.Desired) func(*fixture) { return func(d *fixture) { d.want(1, what, "stopped") } }
	digest := identity.Content(nil).String()
	done := func(d *fixture) {
		inputtest.Save(d.t, d.Ports, identity.ShardKey(run, 0), shard.Doc{Schema: 1, Run: run, State: shard.Done, Attempt: 7, Worker: "other",
			Result: &shard.Ref{Key: "work/x", Length: 1, Digest: digest}, Counts: shard.Counts{OK: 3}})
	}
	mine := health.HeldShard{Run: run, Shard: 0, Attempt: 7}
	for name, c := range map[string]struct {
		given   []func(*fixture)
		term    uint64
		attempt uint64 // of the shard afterwards
		claimed bool
		reports bool // ShardDone is sent
	}{
		"nobody has the shard":                      {nil, 3, 1, true, false},
		"done: it says so again":                    {[]func(*fixture){done}, 3, 7, false, true},
		"held by a living worker":                   {[]func(*fixture){held(7), beats(health.Ready, 0, mine)}, 3, 7, false, false},
		"held since the holder's last beat":         {[]func(*fixture){held(7), beats(health.Ready, 2*time.Minute)}, 3, 8, true, false},
		"the holder's beat is over":                 {[]func(*fixture){held(7), beats(health.Ready, time.Minute, mine)}, 3, 8, true, false},
		"the holder never had a beat":               {[]func(*fixture){held(7)}, 3, 8, true, false},
		"the holder has gone in an orderly way":     {[]func(*fixture){held(7), beats(health.Gone, 0)}, 3, 8, true, false},
		"a newer beat of the holder disowns it":     {[]func(*fixture){held(7), beats(health.Ready, 0)}, 3, 8, true, false},
		"the beat speaks for another claim":         {[]func(*fixture){held(8), beats(health.Ready, 0, mine)}, 3, 9, true, false},
		"the run is paused":                         {[]func(*fixture){control(record.DesiredPause)}, 3, 0, false, false},
		"the run ends":                              {[]func(*fixture){control(record.DesiredEnd)}, 3, 0, false, false},
		"the message is of an older term":           {[]func(*fixture){held(7)}, 2, 7, false, false},
		"the run was paused and goes on":            {[]func(*fixture){control(record.DesiredRun)}, 3, 1, true, false},
		"the holder is alive and the run is paused": {[]func(*fixture){held(7), beats(health.Ready, 0, mine), control(record.DesiredPause)}, 3, 7, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 3)
				for _, f := range c.given {
					f(d)
				}
				e := &engine{answer: stuck}
				d.send(work, events.Work{Run: string(run), Pool: "default", Term: c.term})
				d.start("w1", e)
				pass(50 * time.Millisecond)
				if n := d.waiting(work); n != 0 {
					t.Errorf("%d messages are left, want it acknowledged", n)
				}
				doc := d.shard(0)
				if claimed := doc.Worker == "w1"; claimed != c.claimed || doc.Attempt != c.attempt {
					t.Errorf("the shard is %s, held by %q, attempt %d; want claimed %v, attempt %d", doc.State, doc.Worker, doc.Attempt, c.claimed, c.attempt)
				}
				if asked := len(e.questions()) > 0; asked != c.claimed {
					t.Errorf("the engine was asked: %v", asked)
				}
				said := d.heard()
				if reports := len(said) == 1; reports != c.reports {
					t.Fatalf("coordinate was told %v", said)
				}
				if c.reports {
					want := events.ShardDone{Run: string(run), Shard: 0, Attempt: 7, Worker: "other", Counts: events.Counts{OK: 3}, Digest: digest}
					if got := said[0].(events.ShardDone); got.Attempt != want.Attempt || got.Worker != want.Worker || got.Counts.OK != want.Counts.OK || got.Digest != want.Digest {
						t.Errorf("it says %+v, want %+v", got, want)
					}
				}
			})
		})
	}
}

func TestWhatIsNoWorkIsADeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 3)
		for _, body := range []string{"{", `{"specversion":"1.0"}`, "null"} {
			if err := d.stores.queues.Send(t.Context(), work, [][]byte{[]byte(body)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		d.send(work, events.Wakeup{Run: string(run)})
		d.start("w1", &engine{})
		synctest.Wait()
		if left, dead := d.waiting(work), d.waiting(queue.DeadLetterQueue(work)); left != 0 || dead != 4 {
			t.Errorf("%d messages left, %d dead letters; want 0 and 4", left, dead)
		}
	})
}

func TestAMessageThatNamesAnotherShardsLinesAnswersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 3)
		e := &engine{}
		d.send(work, events.Work{Run: string(run), Shard: 0, Row: 1, Pool: "default"})
		d.start("w1", e)
		synctest.Wait()
		if doc := d.shard(0); doc.State != shard.Pending || len(e.questions()) != 0 {
			t.Errorf("shard 0 is %s, and items %v were asked", doc.State, e.questions())
		}
		if said := d.heard(); len(said) != 1 || said[0].(events.ShardReleased).Shard != 0 {
			t.Errorf("coordinate was told %v, want that the shard is released", said)
		}
	})
}

func TestOfTwoWorkersWithTheSameMessageOneAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 8, 2)
		e := &engine{}
		for n := range 8 {
			d.offer(n, n)
		}
		d.start("w1", e)
		d.start("w2", e)
		pass(10 * time.Second)
		for n := range 8 {
			if doc := d.shard(n); doc.State != shard.Done || doc.Attempt != 1 {
				t.Errorf("shard %d: %+v", n, doc)
			}
		}
		if n := len(e.questions()); n != 16 {
			t.Errorf("%d requests for 16 items", n)
		}
	})
}

// A message that comes while the shard is being given back here must not be
// acknowledged: it may be the only one.
func TestAMessageOfAShardThatIsBeingGivenBackIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		first := true
		e := &engine{}
		e.fail = func() error {
			if !first {
				return nil
			}
			first = false
			return fault.New(fault.Unavailable, "the engine is away")
		}
		e.answer = func(context.Context, int) error {
			if first {
				return fault.New(fault.Unavailable, "the engine is away")
			}
			return nil
		}
		d.stores.failing(func(c call) error {
			if c.what == "send" && c.key == host.CoordinateQueue && first == false && d.shard(0).State == shard.Pending {
				<-time.After(2 * time.Second) // the report takes its time
			}
			return nil
		})
		d.offer(0)
		d.start("w1", e)
		pass(time.Second)
		d.offer(0)
		pass(10 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done {
			t.Errorf("the shard is %s after a minute, and %d messages are left", doc.State, d.waiting(work))
		}
	})
}

func TestAPausedRunIsLeftAloneHoweverSeldomTheWorkerBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		d.offer(0)
		d.start("w1", &engine{}, func(c *worker.Config) {
			c.Timings = health.Timings{Interval: 20 * time.Second, SelfFence: 80 * time.Second, FailureTimeout: 100 * time.Second, SkewBudget: 2 * time.Second}
		})
		synctest.Wait()
		d.want(1, record.DesiredPause, "lunch")
		pass(6 * time.Second)
		d.offer(1)
		synctest.Wait()
		if doc := d.shard(1); doc.State != shard.Pending {
			t.Errorf("shard 1 was claimed 6 s after the pause: %+v", doc)
		}
	})
}
