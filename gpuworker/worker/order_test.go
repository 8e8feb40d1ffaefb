package worker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/shard"
)

// The engine is full from the first request to the last, and a shard's items
// begin in order and before those of the next shard.
func TestEngineIsKeptFullInOrderAcrossShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards, items, inFlight = 12, 5, 7
		d := newFixture(t, shards, items)
		e := &fakeExecutor{}
		idle := time.Duration(0) // of all slots together
		e.answer = func(ctx context.Context, n int) error {
			return answerAfter(ctx, time.Duration(100+n%3*70)*time.Millisecond)
		}
		for n := range shards {
			d.sendWork(n)
		}
		begun := time.Now()
		d.start("w1", e, func(c *worker.Config) { c.InFlight = inFlight })
		for {
			advance(10 * time.Millisecond)
			if len(e.askedItems()) == shards*items {
				break
			}
			e.mu.Lock()
			idle += time.Duration(inFlight-e.inFlight) * 10 * time.Millisecond
			e.mu.Unlock()
			if time.Since(begun) > time.Minute {
				t.Fatal("the items are not all asked within a minute")
			}
		}
		if idle > 0 {
			t.Errorf("slots were free for %s in all", idle)
		}
		if e.most > inFlight {
			t.Errorf("%d requests at once, more than %d", e.most, inFlight)
		}
		asked := e.askedItems()
		for at := 0; at < len(asked); at += items {
			first := asked[at]
			want := []int{first, first + 1, first + 2, first + 3, first + 4}
			if first%items != 0 || !slices.Equal(asked[at:at+items], want) {
				t.Fatalf("requests %d and on are for the items %v, not for a shard's in order", at, asked[at:at+items])
			}
		}
	})
}

func TestWorkerClaimsNoMoreThanEngineCanUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 20, 10)
		for n := range 20 {
			d.sendWork(n)
		}
		d.start("w1", &fakeExecutor{answer: neverAnswer}, func(c *worker.Config) { c.InFlight = 1 })
		advance(30 * time.Second)
		claimed := 0
		for n := range 20 {
			if d.shard(n).State == shard.Running {
				claimed++
			}
		}
		if claimed != 1 {
			t.Errorf("%d shards of 10 items are claimed for an engine that answers one at a time and has begun one", claimed)
		}
	})
}

func TestSetInFlightChangesLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 40, 10)
		for n := range 40 {
			d.sendWork(n)
		}
		e := &fakeExecutor{answer: func(ctx context.Context, _ int) error { return answerAfter(ctx, time.Second) }}
		w := d.start("w1", e, func(c *worker.Config) { c.InFlight = 2 })
		inFlight := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.inFlight
		}
		advance(100 * time.Millisecond)
		for _, n := range []int{2, 25, 3, 1, 40} {
			w.SetInFlight(n)
			advance(2 * time.Second) // requests beyond the limit end
			if got := inFlight(); got != n {
				t.Errorf("%d requests at once, want %d", got, n)
			}
			if got := d.heartbeat("w1").MaxInFlight; got != n {
				t.Errorf("the heartbeat says %d, want %d", got, n)
			}
		}
	})
}
