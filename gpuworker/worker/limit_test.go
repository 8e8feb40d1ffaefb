package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// limited is a fixture whose shards are all queued, for workers under a limit. Their
// engine is the meter.
type limited struct {
	*fixture
	meter
}

func newLimited(t *testing.T, shards, items int) *limited {
	t.Helper()
	d := &limited{fixture: newFixture(t, shards, items)}
	for n := range shards {
		d.sendWork(n)
	}
	return d
}

// startLimited runs a worker whose pool has a limit of requests a minute.
func (d *limited) startLimited(id string, requests int64, edit ...func(*worker.Config)) *runningWorker {
	return d.start(id, d.of(id), append(edit, limitedTo(requests))...)
}

// limitedTo sets the pool's limit.
func limitedTo(requests int64) func(*worker.Config) {
	return func(c *worker.Config) { c.Limit = ratelimit.Amount{Requests: requests} }
}

// keepsTo checks that no minute had more requests than the limit.
func (d *limited) keepsTo(limit int) {
	d.t.Helper()
	if n := most(d.asked()); n > limit {
		d.t.Errorf("%d requests within a minute, want at most %d", n, limit)
	}
}

// meter is an engine that answers at once and notes when it was asked, and by whom.
type meter struct {
	mu sync.Mutex
	at map[string][]time.Time
}

// of returns an executor of the worker over the engine.
func (m *meter) of(id string) *fakeExecutor {
	return &fakeExecutor{answer: func(context.Context, int) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.at == nil {
			m.at = map[string][]time.Time{}
		}
		m.at[id] = append(m.at[id], time.Now())
		return nil
	}}
}

// asked returns when the engine was asked, in order.
func (m *meter) asked() (all []time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.at {
		all = append(all, at...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// by returns how often the worker has asked.
func (m *meter) by(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at[id])
}

// most returns the most requests within any minute.
func most(at []time.Time) (n int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= time.Minute {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// limitCalls counts the calls of the documents of limits.
func (d *limited) limitCalls(what ...string) (n int) {
	for _, c := range d.stores.recordedCalls() {
		if slices.Contains(what, c.what) && strings.HasPrefix(c.key, record.LimitPrefix) {
			n++
		}
	}
	return n
}

func (d *limited) limitDoc() ratelimit.Doc {
	return hosttest.Load[ratelimit.Doc](d.t, d.Ports, record.LimitKey("default"))
}

func TestWorkersShareThePoolsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 200, 2)
		for _, id := range []string{"w1", "w2"} {
			d.startLimited(id, 60)
		}
		advance(5 * time.Minute)
		d.keepsTo(60)
		if n := len(d.asked()); n < 270 || n == 400 {
			t.Errorf("%d requests within 5 minutes, want nearly 300", n)
		}
		if a, b := d.by("w1"), d.by("w2"); min(a, b)*4 < max(a, b)*3 {
			t.Errorf("one worker made %d requests, the other one %d", a, b)
		}
		if n := d.limitCalls("write"); n > 5*60 {
			t.Errorf("the limit's document was written %d times within 5 minutes", n)
		}
	})
}

func TestPoolWithoutLimitHasNoLimitDocument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 4, 2)
		w := d.start("w1", d.of("w1"))
		advance(time.Minute)
		w.Drain("over")
		advance(time.Minute)
		if d.shard(3).State != shard.Done || !w.ended() {
			t.Fatal("the shards are not answered")
		}
		if n := d.limitCalls("read", "write"); n > 0 {
			t.Errorf("the limit's document was used %d times", n)
		}
		if l := d.heartbeat("w1").Load.Limit; l != nil {
			t.Errorf("the heartbeat reports the limit %+v", *l)
		}
	})
}

// An idle pool with a limit writes nothing: the worker gives its share back.
func TestIdleWorkerGivesItsShareBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 1, 2)
		d.startLimited("w1", 60)
		advance(30 * time.Second)
		if doc := d.limitDoc(); len(doc.Grants) > 0 {
			t.Errorf("half a minute after its last request it has %+v", doc.Grants)
		}
		used := d.limitCalls("read", "write")
		advance(time.Hour)
		if n := d.limitCalls("read", "write") - used; n > 0 {
			t.Errorf("the limit's document was used %d times while nothing was asked", n)
		}
	})
}

func TestDrainedWorkerReturnsItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 50, 2)
		w := d.startLimited("w1", 60)
		advance(20 * time.Second)
		w.Drain("preempted")
		advance(5 * time.Second)
		if !w.ended() || w.err != nil {
			t.Fatalf("5 s after the drain began: ended %v, %v", w.ended(), w.err)
		}
		doc, cooling := d.limitDoc(), int64(0)
		for _, c := range doc.Cooling {
			cooling += c.Requests
		}
		if len(doc.Grants) > 0 || cooling != int64(d.by("w1")) {
			t.Errorf("it made %d requests and left the document %+v", d.by("w1"), doc)
		}
		next := time.Now()
		d.startLimited("w2", 60)
		advance(10 * time.Second)
		if d.by("w2") == 0 {
			t.Errorf("another worker made no request within %s", time.Since(next))
		}
		advance(2 * time.Minute)
		d.keepsTo(60)
	})
}

func TestShareOfKilledWorkerGoesToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 200, 2)
		w := d.startLimited("w1", 60)
		advance(2 * time.Minute)
		w.kill()
		d.startLimited("w2", 60)
		advance(30 * time.Second)
		if d.by("w2") == 0 {
			t.Error("no request within 30 s after a worker was killed")
		}
		advance(2 * time.Minute)
		before := d.by("w2")
		advance(time.Minute)
		if n := d.by("w2") - before; n < 55 {
			t.Errorf("%d requests in a later minute, want about 60", n)
		}
		d.keepsTo(61) // of the crashed worker, a second's worth may come back too early
	})
}

// A worker under a limit claims what it can ask soon, and leaves the rest to others.
func TestLimitedWorkerClaimsNoMoreThanItCanServeSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 40, 2)
		many := func(c *worker.Config) { c.InFlight = 64 }
		d.startLimited("w1", 6, many)
		advance(2 * time.Minute)
		b := d.heartbeat("w1")
		if n := len(b.Holds); n == 0 || n > 3 {
			t.Errorf("it holds %d shards of 2 items at 6 requests a minute", n)
		}
		if l := b.Load.Limit; l == nil || l.Requests != 6 || l.ShareRequests != 6 || l.Waiting == 0 {
			t.Errorf("its heartbeat reports the limit %+v", l)
		}
	})
}

func TestLimitedWorkerStopsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 4, 20)
		d.startLimited("w1", 6)
		advance(30 * time.Second)
		d.setControl(1, record.DesiredPause, "lunch")
		advance(2 * time.Second)
		before := len(d.asked())
		for n := range 4 {
			if s := d.shard(n); s.State == shard.Running {
				t.Errorf("2 s after the pause shard %d is %s", n, s.State)
			}
		}
		advance(time.Minute)
		if n := len(d.asked()) - before; n > 0 {
			t.Errorf("%d requests began after the pause", n)
		}
	})
}

// The document is written at most once a second in all, however many workers there are,
// from their start on.
func TestFiftyWorkersWriteTheLimitAtMostOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, limit, warmUp, measured = 50, 1200, 5 * time.Minute, 2 * time.Minute
		n := limit*int((warmUp+measured)/time.Minute)/20 + workers
		d := newLimited(t, n, 20)
		for n := range workers {
			id := fmt.Sprintf("w%02d", n)
			d.startLimited(id, limit)
		}
		advance(warmUp)
		before := len(d.asked())
		advance(measured)
		d.keepsTo(limit)
		if n, want := len(d.asked())-before, limit*int(measured/time.Minute); n < want*9/10 {
			t.Errorf("%d requests within %s, want nearly %d", n, measured, want)
		}
		for _, g := range d.limitDoc().Grants {
			if g.Share.Requests < limit/workers/2 {
				t.Errorf("worker %s has a share of %d of %d for %d workers", g.Worker, g.Share.Requests, limit, workers)
			}
		}
		var last time.Time
		writes := 0
		for _, c := range d.stores.recordedCalls() {
			if (c.what == "write" || c.what == "wrote") && strings.HasPrefix(c.key, record.LimitPrefix) && c.at != last {
				if gap := c.at.Sub(last); gap < time.Second {
					t.Fatalf("two writes within %s", gap)
				}
				last = c.at
				writes++
			}
		}
		t.Logf("%.2f writes and %.1f reads a second", float64(writes)/(warmUp+measured).Seconds(),
			float64(d.limitCalls("read"))/(warmUp+measured).Seconds())
	})
}

// A store that is away for a short time costs nothing, since a slice outlasts it.
func TestLimitedWorkerGoesOnWhileTheLimitCannotBeRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 100, 2)
		d.startLimited("w1", 60)
		advance(20 * time.Second)
		away := func(c call) error {
			if strings.HasPrefix(c.key, record.LimitPrefix) {
				return fault.New(fault.Unavailable, "away")
			}
			return nil
		}
		d.stores.failWith(away)
		before := len(d.asked())
		advance(4 * time.Second)
		if n := len(d.asked()) - before; n < 3 {
			t.Errorf("%d requests within 4 s without the store", n)
		}
		advance(time.Minute)
		before = len(d.asked())
		advance(time.Minute)
		if n := len(d.asked()) - before; n > 0 {
			t.Errorf("%d requests began although the slice is over", n)
		}
		d.stores.failWith(nil)
		advance(time.Minute)
		if n := len(d.asked()) - before; n < 50 {
			t.Errorf("%d requests in the minute after the store came back", n)
		}
	})
}

// A worker that lost its lease does not even look: it stops.
func TestFencedWorkerLeavesTheLimitAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 100, 2)
		between := func(c *worker.Config) { c.Timings.SelfFence = 4100 * time.Millisecond } // of two heartbeats
		w := d.startLimited("w1", 60, between)
		advance(5 * time.Second)
		d.stores.failWith(func(c call) error {
			if c.what == "write" {
				return fault.New(fault.Unavailable, "away")
			}
			return nil
		})
		advance(3 * time.Second)
		before := d.limitCalls("read")
		advance(10 * time.Second)
		if !w.ended() || !fault.Is(w.err, fault.Fenced) {
			t.Fatalf("ended %v, %v", w.ended(), w.err)
		}
		if n := d.limitCalls("read") - before; n > 8 {
			t.Errorf("it read the limit's document %d times", n)
		}
	})
}

// A suspect is asked alone, with all slots, while other requests wait for the limit.
func TestSuspectsAreAskedUnderALimit(t *testing.T) {
	t.Parallel()
	for _, requests := range []int64{1, 20, 600} {
		t.Run(fmt.Sprint(requests), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newLimited(t, 3, 4)
				crashed := false
				e := &fakeExecutor{answer: func(_ context.Context, n int) error {
					if n == 5 && !crashed {
						crashed = true
						return crashError{shard.Crash{}}
					}
					return nil
				}}
				d.start("w1", e, limitedTo(requests))
				advance(15 * time.Minute)
				for n := range 3 {
					if s := d.shard(n); s.State != shard.Done {
						t.Errorf("shard %d is %s", n, s.State)
					}
				}
			})
		})
	}
}
