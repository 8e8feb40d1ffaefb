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
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// answerEvenItems answers even items after two seconds and odd ones never.
func answerEvenItems(ctx context.Context, n int) error {
	if n%2 == 0 {
		return answerAfter(ctx, 2*time.Second)
	}
	return neverAnswer(ctx, n)
}

func TestDrainSavesRowsOfRequestsThatEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 4)
		d.sendWork(0, 1)
		e := &fakeExecutor{answer: answerEvenItems}
		// Items 0 to 2 are in flight, and shard 1 is claimed ahead.
		w := d.start("w1", e, func(c *worker.Config) { c.InFlight = 3 })
		advance(time.Second)
		asked := e.askedItems()
		begun, ahead := asked[0]/4, 1-asked[0]/4
		for range 5 {
			w.Drain("preempted")
		}

		synctest.Wait()
		if doc := d.shard(ahead); doc.State != shard.Pending || doc.Attempt != 1 {
			t.Errorf("the prefetched shard was not released at once: %+v", doc)
		}
		released := events.ShardReleased{Run: string(run), Shard: ahead, Worker: "w1", Attempt: 1}
		if sent := d.coordinateEvents(); !slices.Equal(sent, []events.Payload{released}) {
			t.Errorf("coordinate was sent %v, want %v", sent, released)
		}
		d.sendWork(ahead)
		advance(2 * time.Second)
		if doc := d.shard(begun); doc.State != shard.Running {
			t.Errorf("the shard in execution is %s while its requests may go on", doc.State)
		}
		if d.heartbeat("w1").State != health.Draining {
			t.Errorf("the heartbeat says %s", d.heartbeat("w1").State)
		}

		advance(5 * time.Second)
		if !w.ended() || w.err != nil {
			t.Fatalf("the worker has not ended within its budget: %v", w.err)
		}
		doc := d.shard(begun)
		if doc.State != shard.Pending || doc.Checkpoint == nil || doc.Counts.OK != 2 {
			t.Errorf("the shard in execution was not released with its two rows: %+v", doc)
		}
		if got := e.askedItems(); !slices.Equal(got, asked) {
			t.Errorf("asked %v, and after the drain began also %v", asked, got[len(asked):])
		}
		if b := d.heartbeat("w1"); b.State != health.Gone || len(b.Holds) != 0 {
			t.Errorf("the last heartbeat is %+v", b)
		}
		if d.queued(work) != 1 {
			t.Error("a draining worker took a message")
		}
	})
}

// Requests take 600 s and the budget is 60 s.
func TestC30DrainReleasesAtOnceWhatWillNotEndInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before time.Duration // the drain
		ends   time.Duration // of the worker, after the drain began
		ok     int           // rows saved by then
	}{
		"too long by the age of the first requests": {100 * time.Second, 0, 0},
		"too long by the duration of others":        {610 * time.Second, 0, 2},
		"first requests that may end in time":       {30 * time.Second, 45 * time.Second, 0},
		"second requests about to end":              {1170 * time.Second, 30 * time.Second, 4},
		"second requests that end too late":         {1150 * time.Second, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 40)
				d.sendWork(0)
				answer := func(ctx context.Context, n int) error { return answerAfter(ctx, 600*time.Second) }
				w := d.start("w1", &fakeExecutor{answer: answer}, func(c *worker.Config) { c.InFlight, c.Drain = 2, time.Minute })
				advance(c.before)
				w.Drain("preempted")
				began := time.Now()
				<-w.done
				if took := time.Since(began); took != c.ends {
					t.Errorf("the worker ended after %s, want %s", took, c.ends)
				}
				if doc := d.shard(0); doc.State != shard.Pending || doc.Counts.OK != c.ok {
					t.Errorf("the shard is %+v, want %d rows", doc, c.ok)
				}
			})
		})
	}
}

// A drain takes its budget or the notice's lead, whichever is shorter.
func TestC28DrainEndsWithinNoticeLead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leads []time.Duration // of notices, a second apart
		ends  time.Duration   // after the first
	}{
		"lead longer than the budget":            {[]time.Duration{120 * time.Second}, 45 * time.Second},
		"lead shorter than the budget":           {[]time.Duration{30 * time.Second}, 22500 * time.Millisecond},
		"lead of three seconds":                  {[]time.Duration{3 * time.Second}, 2250 * time.Millisecond},
		"no lead":                                {[]time.Duration{0}, 0},
		"second notice with an earlier deadline": {[]time.Duration{120 * time.Second, 4 * time.Second}, 4 * time.Second},
		"second notice with the same deadline":   {[]time.Duration{20 * time.Second, 19 * time.Second}, 15 * time.Second},
		"five notices of one preemption":         {slices.Repeat([]time.Duration{8 * time.Second}, 5), 6 * time.Second},
		"second notice after the drain":          {[]time.Duration{0, 120 * time.Second}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 40)
				d.sendWork(0)
				// Three quick answers, so that the next may well end in time, but does not.
				w := d.start("w1", &fakeExecutor{answer: func(ctx context.Context, n int) error {
					if n < 3 {
						return answerAfter(ctx, time.Millisecond)
					}
					return neverAnswer(ctx, n)
				}}, func(c *worker.Config) { c.InFlight, c.Drain = 1, time.Minute })
				advance(time.Second)
				notices := make(chan capacity.Notice, len(c.leads))
				go w.WatchNotices(t.Context(), notices)
				began := time.Now()
				for k, lead := range c.leads {
					notice := capacity.Notice{Reason: "spot", Lead: lead}
					time.AfterFunc(time.Duration(k)*time.Second, func() { notices <- notice })
				}
				<-w.done
				if took := time.Since(began); took != c.ends {
					t.Errorf("the worker ended after %s, want %s", took, c.ends)
				}
				if doc := d.shard(0); doc.State != shard.Pending || w.err != nil {
					t.Errorf("the shard is %s, the worker ended with %v", doc.State, w.err)
				}
			})
		})
	}
}

// A storm of recommendations to leave the machine stops no work unless the pool wants it.
func TestAdviceDrainsOnlyIfAskedFor(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t, 1, 4)
			d.sendWork(0)
			w := d.start("w1", &fakeExecutor{answer: func(ctx context.Context, _ int) error {
				return answerAfter(ctx, time.Minute)
			}}, func(c *worker.Config) { c.InFlight, c.DrainOnAdvice = 4, wanted })
			advance(time.Second)
			notices := make(chan capacity.Notice)
			go w.WatchNotices(t.Context(), notices)
			for range 50 {
				notices <- capacity.Notice{Reason: "rebalance", Lead: 2 * time.Minute, Advice: true}
			}
			advance(time.Second) // for the next heartbeat
			if draining := d.heartbeat("w1").State == health.Draining || w.ended(); draining != wanted {
				t.Errorf("with DrainOnAdvice %v it drains: %v", wanted, draining)
			}
			if wanted {
				return
			}
			advance(2 * time.Minute)
			if doc := d.shard(0); doc.State != shard.Done || w.ended() {
				t.Errorf("the shard is %s, and the worker ended: %v", doc.State, w.ended())
			}
			notices <- capacity.Notice{Reason: "spot", Lead: time.Minute}
			synctest.Wait()
			if !w.ended() {
				t.Error("a notice of the end no longer drains")
			}
		})
	}
}

func TestDrainOfIdleWorkerEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(*fixture, *runningWorker){
		"by a call": func(_ *fixture, w *runningWorker) { w.Drain("test") },
		"by a preemption notice": func(d *fixture, w *runningWorker) {
			notices := make(chan capacity.Notice, 1)
			go w.WatchNotices(d.t.Context(), notices)
			notices <- capacity.Notice{Reason: "spot"}
		},
		"by a mark of the control plane": func(d *fixture, _ *runningWorker) {
			hosttest.Save(d.t, d.Ports, record.WorkerKey("w1"), record.WorkerMark{Schema: 1, DrainReason: "test"})
			advance(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 1)
				w := d.start("w1", &fakeExecutor{})
				synctest.Wait()
				drain(d, w)
				if !w.ended() || w.err != nil || d.heartbeat("w1").State != health.Gone {
					t.Errorf("ended: %v, %v; the heartbeat says %s", w.ended(), w.err, d.heartbeat("w1").State)
				}
			})
		})
	}
}

// A heartbeat under way at the end must not overwrite the last one.
func TestLastHeartbeatSaysGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 1)
		w := d.start("w1", &fakeExecutor{})
		synctest.Wait()
		writes := 0
		d.stores.failWith(func(c call) error {
			if c.key != record.HeartbeatKey("w1") {
				return nil
			}
			if c.what == "write" {
				if writes++; writes == 1 {
					<-time.After(2 * time.Second) // the first is slow
				}
			}
			if c.what == "wrote" {
				<-time.After(4 * time.Second) // and so is the reply to each write
			}
			return nil
		})
		advance(time.Second) // a heartbeat is under way
		w.Drain("test")
		advance(20 * time.Second)
		if !w.ended() || d.heartbeat("w1").State != health.Gone {
			t.Errorf("ended: %v; the last heartbeat says %s", w.ended(), d.heartbeat("w1").State)
		}
	})
}

func TestDrainEndsInBudgetWhenNothingCanBeSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.sendWork(0)
		w := d.start("w1", &fakeExecutor{answer: answerEvenItems})
		advance(3 * time.Second)
		d.stores.failWith(func(c call) error {
			if c.what == "put" {
				return fault.New(fault.Exhausted, "the disk is full")
			}
			return nil
		})
		w.Drain("test")
		advance(11 * time.Second)
		if !w.ended() || w.err != nil {
			t.Fatalf("ended: %v, %v", w.ended(), w.err)
		}
		if doc := d.shard(0); doc.State != shard.Pending || doc.Checkpoint != nil {
			t.Errorf("the shard was not released: %+v", doc)
		}
	})
}

func TestPauseIsAcknowledgedAfterRequestsEndWithinGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.sendWork(0)
		e := &fakeExecutor{answer: answerEvenItems}
		d.start("w1", e)
		advance(time.Second)
		d.setControl(1, record.DesiredPause, "maintenance")
		acknowledged := time.Duration(0)
		paused := time.Now()
		for range 60 { // heartbeats come every half second
			advance(100 * time.Millisecond)
			if d.heartbeat("w1").Control[run] == 1 && acknowledged == 0 {
				acknowledged = time.Since(paused)
				if doc := d.shard(0); doc.State != shard.Pending {
					t.Errorf("the pause is acknowledged while the shard is %s", doc.State)
				}
			}
		}
		// Read within half a second, then 3 s of grace, then the next heartbeat.
		if acknowledged < 3*time.Second || acknowledged > 4200*time.Millisecond {
			t.Errorf("acknowledged after %s", acknowledged)
		}
		doc := d.shard(0)
		if doc.State != shard.Pending || doc.Counts.OK != 1 || doc.Checkpoint == nil {
			t.Errorf("the shard is %+v", doc)
		}
		if got := e.askedItems(); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("asked %v, want no request after the pause", got)
		}
		if sent := d.coordinateEvents(); len(sent) != 1 || sent[0].(events.ShardReleased).Shard != 0 {
			t.Errorf("coordinate was sent %v", sent)
		}

		d.setControl(2, record.DesiredRun, "")
		e.answer = nil
		d.sendWork(0)
		advance(time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 4 || doc.Attempt != 2 {
			t.Errorf("after the resume the shard is %+v", doc)
		}
		if got := e.askedItems()[2:]; !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("asked %v after the resume, want the items without a row", got)
		}
	})
}

func TestHolderSealsShardOfEndedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.sendWork(0)
		d.start("w1", &fakeExecutor{answer: answerEvenItems})
		advance(time.Second)
		d.setControl(1, record.DesiredEnd, "expired")
		advance(5 * time.Second)
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Sealed != fault.Expired || doc.Checkpoint == nil ||
			doc.Result != nil || doc.Items != 4 {
			t.Errorf("the shard is %+v", doc)
		}
		if doc.Counts.OK != 1 || doc.Counts.Failed != 3 || doc.Counts.ByClass["expired"] != 3 {
			t.Errorf("its counts are %+v", doc.Counts)
		}
		sent := d.coordinateEvents()
		if len(sent) != 1 || sent[0].(events.ShardDone).Counts.Failed != 3 {
			t.Errorf("coordinate was sent %v", sent)
		}
	})
}

func TestEndOfRunOverridesPauseAndDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.sendWork(0)
		w := d.start("w1", &fakeExecutor{answer: answerEvenItems})
		advance(time.Second)
		d.setControl(1, record.DesiredPause, "maintenance")
		advance(time.Second)
		d.setControl(2, record.DesiredEnd, "stopped")
		w.Drain("test")
		advance(10 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Sealed != fault.CanceledItem {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

// A process that has changed a run's control has its workers read it before their next
// heartbeat.
func TestControlIsReadAtOnceWhenAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 40)
		d.sendWork(0)
		e := &fakeExecutor{answer: func(ctx context.Context, _ int) error { return answerAfter(ctx, time.Millisecond) }}
		w := d.start("w1", e, func(c *worker.Config) { c.Timings.Interval, c.Timings.SelfFence = time.Hour, 24*time.Hour })
		advance(5 * time.Millisecond)
		d.setControl(1, record.DesiredEnd, "budget")
		w.ReadControl(t.Context(), run)
		asked := len(e.askedItems())
		advance(time.Second)
		if again := len(e.askedItems()); again != asked || asked == 0 || d.shard(0).State != shard.Done {
			t.Errorf("%d items are asked, then %d; the shard is %s", asked, again, d.shard(0).State)
		}
	})
}
