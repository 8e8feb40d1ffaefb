package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/ratelimit"
)

const always = -1.0

func TestBusyWorkersUseTheWholeLimitFairly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workers int
		limit   ratelimit.Amount
		tokens  int64         // of a request
		warmUp  time.Duration // until all have a fair share
		unfair  float64       // the largest part by which a worker's use may differ from the mean
	}{
		{1, ratelimit.Amount{Requests: 600}, 0, 5 * time.Second, 0},
		{1, ratelimit.Amount{Requests: 1}, 0, 5 * time.Second, 0},
		{1, ratelimit.Amount{Requests: 60_000, Tokens: 9_000_000}, 100, 5 * time.Second, 0},
		{3, ratelimit.Amount{Requests: 600}, 0, 2 * time.Minute, 0.05},
		{3, ratelimit.Amount{Requests: 100, Tokens: 60_000}, 1000, 2 * time.Minute, 0.1},
		{50, ratelimit.Amount{Requests: 3000}, 0, 6 * time.Minute, 0.1},
		{50, ratelimit.Amount{Tokens: 1_000_000}, 2000, 6 * time.Minute, 0.3},
	} {
		t.Run(fmt.Sprintf("%d workers, %+v", c.workers, c.limit), func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 7, c.limit, 0)
			for range c.workers {
				p.add(always, tokens(c.tokens))
			}
			p.run(c.warmUp)
			from := p.now
			p.run(3 * time.Minute)
			p.checkLimit()
			p.checkWrites()
			byWorker, all := p.since(from)
			whole := min(ratio(all.Requests, 3*c.limit.Requests), ratio(all.Tokens, 3*c.limit.Tokens))
			if c.limit.Tokens > 0 && c.limit.Requests > 0 { // one of them is the bound
				whole = max(ratio(all.Requests, 3*c.limit.Requests), ratio(all.Tokens, 3*c.limit.Tokens))
			}
			if whole < 0.9 {
				t.Errorf("%.0f %% of the limit were used", 100*whole)
			}
			for w, a := range byWorker {
				if n := ratio(a.Requests*int64(c.workers), all.Requests); n < 1-c.unfair || n > 1+c.unfair {
					t.Errorf("worker %s used %d requests, the mean is %d", w, a.Requests, all.Requests/int64(c.workers))
				}
			}
			if len(p.lost) > 0 {
				t.Errorf("%d slices of living workers expired, the first %s after the start",
					len(p.lost), p.lost[0].Sub(start))
			}
			if len(byWorker) != c.workers {
				t.Errorf("%d of %d workers began requests", len(byWorker), c.workers)
			}
		})
	}
}

// ratio returns n/of; 1 of nothing.
func ratio(n, of int64) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

func TestNoMinuteExceedsTheLimit(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3, 50} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				limit := ratelimit.Amount{Requests: rapid.Int64Range(0, 2000).Draw(rt, "requests")}
				if limit.Requests == 0 || rapid.Bool().Draw(rt, "limit tokens") {
					limit.Tokens = rapid.Int64Range(1, 500_000).Draw(rt, "tokens")
				}
				skew := time.Duration(rapid.IntRange(0, 2000).Draw(rt, "skew ms")) * time.Millisecond
				p := newPool(rt, rapid.Uint64().Draw(rt, "seed"), limit, skew)
				p.step *= time.Duration(1 + workers/10)
				kills := rapid.Bool().Draw(rt, "kills")
				worker := func() {
					rate := []float64{always, 0.05, 1, 20}[p.rand.IntN(4)]
					mean := 1 + p.rand.Int64N(3000)
					p.add(rate, func() int64 { return 1 + p.rand.Int64N(2*mean) })
				}
				for range workers {
					worker()
				}
				for range 12 {
					p.run(time.Duration(1+p.rand.IntN(20)) * time.Second)
					if kills && len(p.workers) > 0 {
						p.kill(p.workers[p.rand.IntN(len(p.workers))])
						worker()
					}
				}
				p.checkLimit()
				p.checkWrites()
			})
		})
	}
}

func TestWorkersTakeTurnsIfTheLimitIsSmallerThanTheirNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit  ratelimit.Amount
		tokens int64 // of a request
	}{
		{ratelimit.Amount{Requests: 5}, 0},
		{ratelimit.Amount{Tokens: 10_000}, 1800},
	} {
		t.Run(fmt.Sprintf("%+v", c.limit), func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 7, c.limit, 0)
			for range 20 {
				p.add(always, tokens(c.tokens))
			}
			p.run(30 * time.Minute)
			p.checkLimit()
			p.checkWrites()
			byWorker, all := p.since(start)
			for w, a := range byWorker {
				if a.Requests < 3 {
					t.Errorf("worker %s made %d requests", w, a.Requests)
				}
			}
			if len(byWorker) != 20 || all.Requests < 75 {
				t.Errorf("%d workers made %d requests, want 20 and nearly 150", len(byWorker), all.Requests)
			}
		})
	}
}
