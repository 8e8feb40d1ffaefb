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
// are begun in order and before those of the next.
func TestTheEngineIsKeptFullInOrderAcrossShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards, items, inFlight = 12, 5, 7
		d := newFixture(t, shards, items)
		e := &engine{}
		idle := time.Duration(0) // places that stood empty, summed up
		e.answer = func(ctx context.Context, n int) error { return takes(ctx, time.Duration(100+n%3*70)*time.Millisecond) }
		for n := range shards {
			d.offer(n)
		}
		begun := time.Now()
		d.start("w1", e, func(c *worker.Config) { c.InFlight = inFlight })
		for {
			pass(10 * time.Millisecond)
			if len(e.questions()) == shards*items {
				break
			}
			e.mu.Lock()
			idle += time.Duration(inFlight-e.inFlight) * 10 * time.Millisecond
			e.mu.Unlock()
			if time.Since(begun) > time.Minute {
				t.Fatal("it does not end")
			}
		}
		if idle > 0 {
			t.Errorf("places stood empty for %s", idle)
		}
		if e.most > inFlight {
			t.Errorf("%d requests at once, more than %d", e.most, inFlight)
		}
		asked := e.questions()
		for at := 0; at < len(asked); at += items {
			first := asked[at]
			want := []int{first, first + 1, first + 2, first + 3, first + 4}
			if first%items != 0 || !slices.Equal(asked[at:at+items], want) {
				t.Fatalf("requests %d and on are for the items %v, not for a shard's in order", at, asked[at:at+items])
			}
		}
	})
}

func TestNoMoreIsClaimedThanTheEngineCanUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 20, 10)
		for n := range 20 {
			d.offer(n)
		}
		d.start("w1", &engine{answer: stuck}, func(c *worker.Config) { c.InFlight = 1 })
		pass(30 * time.Second)
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

func TestTheNumberOfRequestsAtOnceMayChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 40, 10)
		for n := range 40 {
			d.offer(n)
		}
		e := &engine{answer: func(ctx context.Context, _ int) error { return takes(ctx, time.Second) }}
		w := d.start("w1", e, func(c *worker.Config) { c.InFlight = 2 })
		inFlight := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.inFlight
		}
		pass(100 * time.Millisecond)
		for _, n := range []int{2, 25, 3, 1, 40} {
			w.SetInFlight(n)
			pass(2 * time.Second) // those beyond it end
			if got := inFlight(); got != n {
				t.Errorf("%d requests at once, want %d", got, n)
			}
			if said := d.beat("w1").MaxInFlight; said != n {
				t.Errorf("the heartbeat says %d, want %d", said, n)
			}
		}
	})
}
