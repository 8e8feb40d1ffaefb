package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/ratelimit"
)

func learns(c *worker.Config) { c.LearnLimits = true }

// saying returns an executor of the worker over the engine, whose answers say that of
// its limits.
func (d *limited) saying(id string, r ratelimit.Report) *fakeExecutor {
	e := d.of(id)
	e.says = func() ratelimit.Report { return r }
	return e
}

// A limit that the server states holds for all workers of the pool, also for one that has
// no answer yet, and heartbeats say where it comes from.
func TestWorkersShareALimitThatTheServerStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 200, 2)
		stated := ratelimit.Report{Limit: ratelimit.Amount{Requests: 60}}
		d.start("w1", d.saying("w1", stated), learns)
		advance(10 * time.Second)
		first := len(d.asked()) // before the first answer nothing was known
		d.start("w2", d.of("w2"), learns)
		advance(3 * time.Minute)
		if n := most(d.asked()[first:]); n > 60 {
			t.Errorf("%d requests within a minute", n)
		}
		if a, b := d.by("w1"), d.by("w2"); b < 40 || a+b-first > 185 {
			t.Errorf("one worker made %d requests, the other one %d", a, b)
		}
		l := d.heartbeat("w2").Load.Limit
		if l == nil || l.Requests != 60 || l.RequestsFrom != "headers" || l.UsedRequests < 20 {
			t.Errorf("the heartbeat reports %+v", l)
		}
		if n := d.limitCalls("write"); n > 200 {
			t.Errorf("the limit's document was written %d times within 200 s", n)
		}
	})
}

// A wait that the server asks for stops the whole worker, and is over by itself.
func TestARefusalWithAWaitStopsTheWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 400, 2)
		e := d.of("w1")
		refuse := true
		e.says = func() ratelimit.Report {
			if len(d.asked()) < 100 || !refuse {
				return ratelimit.Report{}
			}
			refuse = false
			return ratelimit.Report{Refused: true, Wait: 57 * time.Second} // until a minute after the first
		}
		e.answer = slowly(e.answer, 50*time.Millisecond)
		d.start("w1", e, learns)
		advance(20 * time.Second)
		l := d.heartbeat("w1").Load.Limit
		if l == nil || l.WaitUntil.IsZero() || l.Waiting == 0 || l.RequestsFrom != "refusals" {
			t.Fatalf("the heartbeat reports %+v", l)
		}
		before := len(d.asked())
		if before > 110 {
			t.Errorf("%d requests before the wait", before)
		}
		advance(35 * time.Second)
		if n := len(d.asked()) - before; n > 0 {
			t.Errorf("%d requests within the wait", n)
		}
		advance(2 * time.Minute)
		if n := len(d.asked()) - before; n < 100 {
			t.Errorf("%d requests after the wait", n)
		}
	})
}

// slowly answers after a time.
func slowly(answer func(context.Context, int) error, d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		time.Sleep(d)
		return answer(ctx, n)
	}
}

// A server that says nothing of limits costs one read of the document, and no write.
func TestAServerWithoutLimitsCostsNoDocument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newLimited(t, 100, 2)
		d.start("w1", d.saying("w1", ratelimit.Report{}), learns)
		advance(time.Minute)
		if n := len(d.asked()); n != 200 {
			t.Errorf("%d requests", n)
		}
		if r, w := d.limitCalls("read"), d.limitCalls("write"); r > 1 || w > 0 {
			t.Errorf("the limit's document was read %d times and written %d times", r, w)
		}
		if l := d.heartbeat("w1").Load.Limit; l != nil {
			t.Errorf("the heartbeat reports the limit %+v", *l)
		}
	})
}
