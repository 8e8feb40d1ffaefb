package worker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// evenQuick answers even items after two seconds and odd ones never.
func evenQuick(ctx context.Context, n int) error {
	if n%2 == 0 {
		return takes(ctx, 2*time.Second)
	}
	return stuck(ctx, n)
}

func TestADrainKeepsWhatEndsInItsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 4)
		d.offer(0, 1)
		e := &engine{answer: evenQuick}
		w := d.start("w1", e, func(c *worker.Config) { c.InFlight = 3 }) // three requests at once: items 0 to 2 are in flight, and shard 1 is claimed ahead
		pass(time.Second)
		asked := e.questions()
		begun, ahead := asked[0]/4, 1-asked[0]/4
		for range 5 {
			w.Drain("a notice")
		}

		synctest.Wait()
		if doc := d.shard(ahead); doc.State != shard.Pending || doc.Attempt != 1 {
			t.Errorf("the prefetched shard is not given back at once: %+v", doc)
		}
		if said := d.heard(); !slices.Equal(said, []events.Payload{events.ShardReleased{Run: string(run), Shard: ahead, Worker: "w1", Attempt: 1}}) {
			t.Errorf("coordinate was told %v", said)
		}
		d.offer(ahead)
		pass(2 * time.Second)
		if doc := d.shard(begun); doc.State != shard.Running {
			t.Errorf("the shard at work is %s while its requests may go on", doc.State)
		}
		if d.beat("w1").State != health.Draining {
			t.Errorf("the heartbeat says %s", d.beat("w1").State)
		}

		pass(5 * time.Second)
		if !w.over() || w.err != nil {
			t.Fatalf("the worker has not ended in its budget: %v", w.err)
		}
		doc := d.shard(begun)
		if doc.State != shard.Pending || doc.Checkpoint == nil || doc.Counts.OK != 2 {
			t.Errorf("the shard at work is not given back with its two answers: %+v", doc)
		}
		if got := e.questions(); !slices.Equal(got, asked) {
			t.Errorf("asked %v, after the drain began also %v", asked, got[len(asked):])
		}
		if b := d.beat("w1"); b.State != health.Gone || len(b.Holds) != 0 {
			t.Errorf("the last heartbeat is %+v", b)
		}
		if d.waiting(work) != 1 {
			t.Error("a draining worker took a message")
		}
	})
}

// 600 s requests and a 60 s budget.
func TestC30ADrainHandsBackAtOnceWhatWillNotEndInItsBudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work time.Duration // before the drain
		ends time.Duration // after it
		ok   int           // answers kept by then
	}{
		"known by the first requests' age":        {100 * time.Second, 0, 0},
		"known by how long others took":           {610 * time.Second, 0, 2},
		"a first request that may end in time":    {30 * time.Second, 45 * time.Second, 0},
		"the second ones are about to end, too":   {1170 * time.Second, 30 * time.Second, 4},
		"the second ones would end, but too late": {1150 * time.Second, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 40)
				d.offer(0)
				w := d.start("w1", &engine{answer: func(ctx context.Context, n int) error { return takes(ctx, 600*time.Second) }},
					func(c *worker.Config) { c.InFlight, c.Drain = 2, time.Minute })
				pass(c.work)
				w.Drain("a notice")
				began := time.Now()
				<-w.done
				if took := time.Since(began); took != c.ends {
					t.Errorf("it ended after %s, want %s", took, c.ends)
				}
				if doc := d.shard(0); doc.State != shard.Pending || doc.Counts.OK != c.ok {
					t.Errorf("the shard is %+v, want %d answers", doc, c.ok)
				}
			})
		})
	}
}

// A drain takes its budget or the notice's lead, whichever is shorter; a
// machine that is gone at once leaves no time for anything.
func TestC28ADrainKeepsWithinTheNoticesLead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leads []time.Duration // of notices, a second apart
		ends  time.Duration   // after the first
	}{
		"longer than the budget":        {[]time.Duration{120 * time.Second}, 45 * time.Second},
		"shorter":                       {[]time.Duration{30 * time.Second}, 22500 * time.Millisecond},
		"three seconds":                 {[]time.Duration{3 * time.Second}, 2250 * time.Millisecond},
		"none":                          {[]time.Duration{0}, 0},
		"a second that leaves less":     {[]time.Duration{120 * time.Second, 4 * time.Second}, 4 * time.Second},
		"a second that leaves as much":  {[]time.Duration{20 * time.Second, 19 * time.Second}, 15 * time.Second},
		"five of one preemption":        {[]time.Duration{8 * time.Second, 8 * time.Second, 8 * time.Second, 8 * time.Second, 8 * time.Second}, 6 * time.Second},
		"a second when it is over, too": {[]time.Duration{0, 120 * time.Second}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 40)
				d.offer(0)
				// Three quick ones, so that it may well end in time; then one that does not.
				w := d.start("w1", &engine{answer: func(ctx context.Context, n int) error {
					if n < 3 {
						return takes(ctx, time.Millisecond)
					}
					return stuck(ctx, n)
				}}, func(c *worker.Config) { c.InFlight, c.Drain = 1, time.Minute })
				pass(time.Second)
				notices := make(chan capacity.Notice, len(c.leads))
				go w.WatchNotices(t.Context(), notices)
				began := time.Now()
				for k, lead := range c.leads {
					time.AfterFunc(time.Duration(k)*time.Second, func() { notices <- capacity.Notice{Reason: "spot", Lead: lead} })
				}
				<-w.done
				if took := time.Since(began); took != c.ends {
					t.Errorf("it ended after %s, want %s", took, c.ends)
				}
				if doc := d.shard(0); doc.State != shard.Pending || w.err != nil {
					t.Errorf("the shard is %s, the worker ended with %v", doc.State, w.err)
				}
			})
		})
	}
}

func TestADrainOfAnIdleWorkerEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(*fixture, *running){
		"asked to": func(_ *fixture, w *running) { w.Drain("go") },
		"at a notice of the machine": func(d *fixture, w *running) {
			notices := make(chan capacity.Notice, 1)
			go w.WatchNotices(d.t.Context(), notices)
			notices <- capacity.Notice{Reason: "spot"}
		},
		"marked by functions": func(d *fixture, _ *running) {
			inputtest.Save(d.t, d.Ports, record.WorkerKey("w1"), record.WorkerMark{Schema: 1, DrainReason: "it is wrong"})
			pass(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 1)
				w := d.start("w1", &engine{})
				synctest.Wait()
				drain(d, w)
				if !w.over() || w.err != nil || d.beat("w1").State != health.Gone {
					t.Errorf("over: %v, %v; the heartbeat says %s", w.over(), w.err, d.beat("w1").State)
				}
			})
		})
	}
}

// A heartbeat on its way while the worker leaves must not bring it back.
func TestTheLastHeartbeatSaysGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 1)
		w := d.start("w1", &engine{})
		synctest.Wait()
		beats := 0
		d.stores.failing(func(c call) error {
			if c.key != record.HeartbeatKey("w1") {
				return nil
			}
			if c.what == "write" {
				if beats++; beats == 1 {
					<-time.After(2 * time.Second) // the one under way comes late
				}
			}
			if c.what == "wrote" {
				<-time.After(4 * time.Second) // and so does the word that the last is written
			}
			return nil
		})
		pass(time.Second) // a beat is under way
		w.Drain("go")
		pass(20 * time.Second)
		if !w.over() || d.beat("w1").State != health.Gone {
			t.Errorf("over: %v; the last heartbeat says %s", w.over(), d.beat("w1").State)
		}
	})
}

func TestADrainEndsInItsBudgetEvenIfNothingCanBeKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.offer(0)
		w := d.start("w1", &engine{answer: evenQuick})
		pass(3 * time.Second)
		d.stores.failing(func(c call) error {
			if c.what == "put" {
				return fault.New(fault.Exhausted, "the disk is full")
			}
			return nil
		})
		w.Drain("go")
		pass(11 * time.Second)
		if !w.over() || w.err != nil {
			t.Fatalf("over: %v, %v", w.over(), w.err)
		}
		if doc := d.shard(0); doc.State != shard.Pending || doc.Checkpoint != nil {
			t.Errorf("the shard is not given back: %+v", doc)
		}
	})
}

func TestAPauseLetsRequestsEndWithinTheGraceAndAcknowledges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.offer(0)
		e := &engine{answer: evenQuick}
		d.start("w1", e)
		pass(time.Second)
		d.want(1, record.DesiredPause, "lunch")
		acknowledged := time.Duration(0)
		paused := time.Now()
		for range 60 { // heartbeats come every half second
			pass(100 * time.Millisecond)
			if d.beat("w1").Control[run] == 1 && acknowledged == 0 {
				acknowledged = time.Since(paused)
				if doc := d.shard(0); doc.State != shard.Pending {
					t.Errorf("it is acknowledged while the shard is %s", doc.State)
				}
			}
		}
		// Learnt within half a second, then 3 s of grace, then the next beat.
		if acknowledged < 3*time.Second || acknowledged > 4200*time.Millisecond {
			t.Errorf("acknowledged after %s", acknowledged)
		}
		doc := d.shard(0)
		if doc.State != shard.Pending || doc.Counts.OK != 1 || doc.Checkpoint == nil {
			t.Errorf("the shard is %+v", doc)
		}
		if got := e.questions(); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("asked %v, want no request after the pause", got)
		}
		if said := d.heard(); len(said) != 1 || said[0].(events.ShardReleased).Shard != 0 {
			t.Errorf("coordinate was told %v", said)
		}

		d.want(2, record.DesiredRun, "")
		e.answer = nil
		d.offer(0)
		pass(time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 4 || doc.Attempt != 2 {
			t.Errorf("after the resume the shard is %+v", doc)
		}
		if got := e.questions()[2:]; !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("asked %v after the resume, want what had no answer", got)
		}
	})
}

func TestAHolderSealsTheShardOfARunThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.offer(0)
		d.start("w1", &engine{answer: evenQuick})
		pass(time.Second)
		d.want(1, record.DesiredEnd, "expired")
		pass(5 * time.Second)
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Sealed != fault.Expired || doc.Checkpoint == nil || doc.Result != nil || doc.Items != 4 {
			t.Errorf("the shard is %+v", doc)
		}
		if doc.Counts.OK != 1 || doc.Counts.Failed != 3 || doc.Counts.ByClass["expired"] != 3 {
			t.Errorf("it counts %+v", doc.Counts)
		}
		said := d.heard()
		if len(said) != 1 || said[0].(events.ShardDone).Counts.Failed != 3 {
			t.Errorf("coordinate was told %v", said)
		}
	})
}

func TestTheEndIsStrongerThanAPauseAndAPauseThanADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.offer(0)
		w := d.start("w1", &engine{answer: evenQuick})
		pass(time.Second)
		d.want(1, record.DesiredPause, "lunch")
		pass(time.Second)
		d.want(2, record.DesiredEnd, "stopped")
		w.Drain("go")
		pass(10 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Sealed != fault.CanceledItem {
			t.Errorf("the shard is %+v", doc)
		}
	})
}
