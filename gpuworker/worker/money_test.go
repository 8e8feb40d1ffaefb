package worker_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/core/cost"
	"rollout/shared/core/shard"
	"rollout/shared/host"
)

// sendPriced sends a work message with an allowance in millionths of a dollar.
func (d *fixture) sendPriced(n, generation int, microUSD int64) {
	d.send(host.WorkQueue("default"), events.Work{Run: string(run), Shard: n, Row: n, Pool: "default",
		Generation: generation, AllowanceMicroUSD: microUSD})
}

// aCentEach has requests of 10 tokens cost a cent.
func aCentEach(c *worker.Config) {
	c.InFlight, c.TokenPrices = 4, cost.TokenPrices{Prompt: 1000, Completion: 1000}
}

func TestShardIsHandedBackWhenItsDollarsAreSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 20)
		d.startWith("w1", &payingExecutor{cost: worker.Cost{MaxTokens: 9}, took: 10}, aCentEach)
		d.sendPriced(0, 0, 95_000)
		advance(time.Second)
		usedUp := events.ShardReleased{Run: string(run), Shard: 0, Worker: "w1", Attempt: 1, AllowanceMicroUSD: 95_000,
			Spent: 100, SpentMicroUSD: 100_000}
		if got := d.coordinateEvents(); !slices.Equal(got, []events.Payload{usedUp}) {
			t.Errorf("coordinate is told %+v, want %+v", got, usedUp)
		}
		if doc := d.shard(0); doc.State != shard.Pending || doc.Counts.TokenNanoUSD != 100_000_000 || doc.Counts.OK != 10 {
			t.Errorf("the shard is %+v", doc)
		}
		d.sendPriced(0, 0, 95_000) // late: its allowance is spent
		advance(time.Second)
		if got := d.coordinateEvents(); len(got) != 1 || got[0].(events.ShardReleased).SpentMicroUSD != 100_000 {
			t.Errorf("after a repeated message coordinate is told %+v", got)
		}
		d.sendPriced(0, 1, 250_000)
		advance(time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 20 || doc.Counts.TokenNanoUSD != 200_000_000 {
			t.Errorf("with a larger allowance the shard is %+v", doc)
		}
	})
}

// TestMachineTimeSpendsTheAllowance asks one request after the other, each of which takes a
// hundredth of a dollar of the machine.
func TestMachineTimeSpendsTheAllowance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 20)
		d.submittedNow()
		e := &payingExecutor{took: 10, lasts: func(int) time.Duration { return 10 * time.Second }}
		d.startWith("w1", e, func(c *worker.Config) {
			priced(c)
			c.InFlight = 1
		})
		d.sendPriced(0, 0, 45_000)
		advance(2 * time.Minute)
		got := d.coordinateEvents()
		released, ok := got[0].(events.ShardReleased)
		// Some seconds of boot and idle time since the submission are in it.
		if !ok || len(got) != 1 || released.SpentMicroUSD < 45_000 || released.SpentMicroUSD > 55_000 {
			t.Fatalf("coordinate is told %+v", got)
		}
		if asked, _ := e.state(); asked < 4 || asked > 5 {
			t.Errorf("%d requests are made of a cent each, the allowance is 4.5", asked)
		}
		doc := d.shard(0)
		if usd := doc.Counts.Spend().MicroUSD; usd != released.SpentMicroUSD {
			t.Errorf("the shard has spent %d, coordinate is told %d", usd, released.SpentMicroUSD)
		}
	})
}

func TestRequestsBeginAsFarAsTheDollarsReach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		longest   int64 // tokens of an answer
		microUSD  int64
		asked, at int // once at most
	}{
		"three fit at once":                {longest: 50, microUSD: 170_000, asked: 17, at: 3},
		"one that does not fit goes alone": {longest: 4000, microUSD: 30_000, asked: 3, at: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 20)
				e := &payingExecutor{cost: worker.Cost{MaxTokens: c.longest}, took: 10,
					lasts: func(int) time.Duration { return time.Second }}
				d.startWith("w1", e, func(cfg *worker.Config) {
					cfg.InFlight, cfg.TokenPrices = 16, cost.TokenPrices{Prompt: 1000, Completion: 1000}
				})
				d.sendPriced(0, 0, c.microUSD)
				advance(time.Minute)
				if asked, most := e.state(); asked != c.asked || most != c.at {
					t.Errorf("%d are asked, %d at once, want %d and %d", asked, most, c.asked, c.at)
				}
			})
		})
	}
}

// TestDollarsOfAVanishedHolderCount kills a worker that has saved nothing: what its tokens cost
// is lost no more than its last heartbeat is old.
func TestDollarsOfAVanishedHolderCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 10)
		e := &payingExecutor{took: 10, lasts: endless(5, 10, time.Millisecond)}
		w := d.startWith("w1", e, aCentEach)
		d.sendPriced(0, 0, 1_000_000)
		advance(5 * time.Second)
		w.kill()
		advance(20 * time.Second)
		d.startWith("w2", &payingExecutor{took: 10}, aCentEach)
		d.sendPriced(0, 1, 1_000_000)
		advance(time.Minute)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.TokenNanoUSD != 150_000_000 {
			t.Errorf("5 and then 10 requests of a cent: %+v", doc)
		}
	})
}

// TestWorkerWithoutPricesRefusesABudgetInDollars sends work that the worker could only do
// without a limit.
func TestWorkerWithoutPricesRefusesABudgetInDollars(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		e := &payingExecutor{took: 10}
		d.startPaying("w1", e, 4)
		d.sendPriced(0, 0, 95_000)
		advance(time.Second)
		got := d.coordinateEvents()
		missing, ok := got[0].(events.ModelMissing)
		if asked, _ := e.state(); !ok || len(got) != 1 || !strings.Contains(missing.Reason, "limits.dollars") || asked != 0 {
			t.Errorf("coordinate is told %+v, and %d requests are made", got, asked)
		}
	})
}
