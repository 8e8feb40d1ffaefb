package worker_test

import (
	"context"
	"slices"
	"strings"
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
	"rollout/shared/record"
)

func TestResultHasAllRowsInItemOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 5)
		d.sendWork(0)
		d.start("w1", &fakeExecutor{answer: func(ctx context.Context, n int) error { // later items end first
			return answerAfter(ctx, time.Duration(10-n)*time.Second)
		}}, func(c *worker.Config) { c.InFlight = 5 })
		advance(time.Minute)
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Counts.OK != 5 || doc.Counts.CompletionTokens != 5 ||
			doc.Checkpoint != nil || doc.Items != 5 {
			t.Fatalf("the shard is %+v", doc)
		}
		got := hosttest.Object(t, d.Ports, doc.Result.Key)
		if got != "0\n1\n2\n3\n4\n" || doc.OutputLen != int64(len(got)) {
			t.Errorf("the result is %q, with %d bytes of output rows", got, doc.OutputLen)
		}
		sent := d.coordinateEvents()
		if len(sent) != 1 || sent[0].(events.ShardDone).Digest != doc.Result.Digest {
			t.Errorf("coordinate was sent %v", sent)
		}
	})
}

func TestNextHolderResumesFromCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.sendWork(0)
		first := &fakeExecutor{answer: answerEvenItems}
		quick := func(c *worker.Config) { c.CheckpointInterval, c.InFlight = 5*time.Second, 4 }
		w := d.start("w1", first, quick)
		advance(6 * time.Second)
		if doc := d.shard(0); doc.Checkpoint == nil || doc.Counts.OK != 2 || doc.State != shard.Running {
			t.Fatalf("after the first interval the shard is %+v", doc)
		}
		advance(20 * time.Second)
		if n := len(objects(d)); n != 1 {
			t.Errorf("%d checkpoints were written, want one: no row was added since", n)
		}
		w.kill()
		advance(10 * time.Second)

		d.sendWork(0)
		second := &fakeExecutor{}
		d.start("w2", second)
		advance(time.Second)
		if got := second.askedItems(); !slices.Equal(got, []int{1, 3}) {
			t.Errorf("asked %v again, want only the items without a row", got)
		}
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Attempt != 2 || doc.Counts.OK != 4 {
			t.Fatalf("the shard is %+v", doc)
		}
		if got := hosttest.Object(t, d.Ports, doc.Result.Key); got != "0\n1\n2\n3\n" {
			t.Errorf("the result is %q", got)
		}
	})
}

// objects returns the keys of the objects put for shards of the run.
func objects(d *fixture) []string {
	var keys []string
	for _, c := range d.stores.recordedCalls() {
		if c.what == "put" && strings.HasPrefix(c.key, record.WorkPrefix+string(run)+"/shards/") {
			keys = append(keys, c.key)
		}
	}
	return keys
}

func TestItemsOfUnreadableCheckpointAreAnsweredAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*fixture, string){
		"lost":    func(d *fixture, key string) { _ = d.Blobs.Delete(d.t.Context(), key, "") },
		"damaged": func(d *fixture, key string) { hosttest.Put(d.t, d.Ports, key, "something else") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 4)
				d.sendWork(0)
				w := d.start("w1", &fakeExecutor{answer: answerEvenItems})
				advance(3 * time.Second)
				w.Drain("test")
				advance(20 * time.Second)
				damage(d, d.shard(0).Checkpoint.Key)
				d.coordinateEvents()

				d.sendWork(0)
				e := &fakeExecutor{}
				d.start("w2", e)
				advance(time.Second)
				doc := d.shard(0)
				if doc.State != shard.Done || doc.Counts.OK != 4 || len(e.askedItems()) != 4 {
					t.Errorf("the shard is %+v, asked %v", doc, e.askedItems())
				}
				if sent := d.coordinateEvents(); len(sent) != 1 {
					t.Errorf("coordinate was sent %v, want one ShardDone", sent)
				}
			})
		})
	}
}

func TestCommitIsRetriedUntilStoreRecovers(t *testing.T) {
	t.Parallel()
	key := identity.ShardKey(run, 0)
	for name, fails := range map[string]func(c call) fault.Kind{
		"disk full":   func(c call) fault.Kind { return pick(c.what == "put", fault.Exhausted) },
		"bucket down": func(c call) fault.Kind { return pick(c.what == "put", fault.Unavailable) },
		"documents unwritable": func(c call) fault.Kind {
			return pick(c.what == "write" && c.key == key, fault.Unavailable)
		},
		"conflict, then documents unreadable": func(c call) fault.Kind {
			if c.what == "write" && c.key == key {
				return fault.Conflict
			}
			return pick(c.what == "read" && c.key == key, fault.Unavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 2)
				e := &fakeExecutor{answer: func(ctx context.Context, _ int) error { return answerAfter(ctx, time.Second) }}
				d.sendWork(0)
				d.start("w1", e)
				advance(500 * time.Millisecond)
				d.stores.failWith(func(c call) error {
					if k := fails(c); k != noFault {
						return fault.New(k, "injected")
					}
					return nil
				})
				advance(time.Minute)
				if doc := d.shard(0); doc.State != shard.Running {
					t.Fatalf("the shard is %s while the store fails", doc.State)
				}
				d.stores.failWith(nil)
				advance(3 * time.Second)
				if doc := d.shard(0); doc.State != shard.Done || doc.Attempt != 1 || doc.Counts.OK != 2 {
					t.Errorf("the shard is %+v", doc)
				}
				if n := len(e.askedItems()); n != 2 {
					t.Errorf("%d requests for 2 items", n)
				}
			})
		})
	}
}

const noFault = fault.Internal // a kind that no case injects

func pick(when bool, k fault.Kind) fault.Kind {
	if when {
		return k
	}
	return noFault
}

func TestWorkerThatLosesCommitRaceSendsNoEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		d.sendWork(0)
		e := &fakeExecutor{answer: func(ctx context.Context, _ int) error { return answerAfter(ctx, 2*time.Second) }}
		d.start("w1", e)
		advance(time.Second)
		doc := d.shard(0)
		doc.Worker, doc.Attempt = "w2", 2
		hosttest.Save(t, d.Ports, identity.ShardKey(run, 0), doc)
		advance(5 * time.Second)
		if got := d.shard(0); got.Worker != "w2" || got.State != shard.Running {
			t.Errorf("the winner's shard was overwritten: %+v", got)
		}
		if sent := d.coordinateEvents(); len(sent) != 0 {
			t.Errorf("coordinate was sent %v", sent)
		}
		d.sendWork(1)
		advance(5 * time.Second)
		if got := d.shard(1); got.State != shard.Done {
			t.Errorf("the worker stopped working: %+v", got)
		}
	})
}

// A worker that can't renew its lease stops writing after the self-fence time,
// before another worker may take over its shards.
func TestI11WorkerWithoutLeaseStopsWriting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		e := &fakeExecutor{answer: func(ctx context.Context, _ int) error {
			<-time.After(6 * time.Second) // it ignores ctx
			return nil
		}}
		d.sendWork(0, 1)
		w := d.start("w1", e)
		advance(time.Second)
		sent := d.heartbeat("w1").At
		d.stores.failWith(func(c call) error {
			if c.what == "write" && strings.HasPrefix(c.key, "beat/") {
				return fault.New(fault.Unavailable, "the store is down")
			}
			return nil
		})
		advance(20 * time.Second)
		if !w.ended() || !fault.Is(w.err, fault.Fenced) {
			t.Fatalf("ended: %v, %v", w.ended(), w.err)
		}
		over := sent.Add(4 * time.Second)
		for _, c := range d.stores.recordedCalls() {
			if c.at.After(over) && (c.what == "write" || c.what == "put" || c.what == "send") {
				t.Errorf("%s of %s, %s after the end of the lease", c.what, c.key, c.at.Sub(over))
			}
		}
		for n := range 2 {
			if doc := d.shard(n); doc.State != shard.Running {
				t.Errorf("shard %d is %s", n, doc.State)
			}
		}
		if b := d.heartbeat("w1"); b.State == health.Gone {
			t.Error("its heartbeat says gone")
		}
	})
}

func TestLoadIsRetriedWhileBucketIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		down := func(c call) error {
			if c.what == "get" && strings.HasPrefix(c.key, record.PromptsPrefix) {
				return fault.New(fault.Unavailable, "the bucket is down")
			}
			return nil
		}
		d.stores.failWith(down)
		d.sendWork(0, 1)
		d.start("w1", &fakeExecutor{})
		advance(5 * time.Second)
		if sent := d.coordinateEvents(); len(sent) != 0 {
			t.Errorf("coordinate was sent %v, want nothing: it would send the shards again at once", sent)
		}
		d.stores.failWith(nil)
		advance(5 * time.Second)
		for n := range 2 {
			if doc := d.shard(n); doc.State != shard.Done || doc.Attempt != 1 {
				t.Errorf("shard %d is %+v", n, doc)
			}
		}
	})
}

func TestMissingOrChangedInputIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(*fixture)
		want   events.Type
	}{
		"missing": {func(d *fixture) { _ = d.Blobs.Delete(d.t.Context(), "prompts/0.jsonl", "") }, events.TypeInputMissing},
		"changed": {func(d *fixture) { hosttest.Put(d.t, d.Ports, "prompts/0.jsonl", "{}\n") }, events.TypeInputChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 2)
				c.damage(d)
				d.sendWork(0)
				d.start("w1", &fakeExecutor{})
				advance(time.Second)
				sent := d.coordinateEvents()
				if len(sent) != 2 || sent[0].EventType() != events.TypeShardReleased || sent[1].EventType() != c.want {
					t.Errorf("coordinate was sent %v", sent)
				}
				if doc := d.shard(0); doc.State != shard.Pending {
					t.Errorf("the shard is %+v", doc)
				}
			})
		})
	}
}

func TestRunOfAnotherModelIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		e := &fakeExecutor{answer: func(context.Context, int) error { return fault.New(fault.Denied, "no") },
			fail: func() error { return fault.WithKind(fault.Denied, worker.ErrModelMismatch, "run") }}
		d.sendWork(0)
		d.start("w1", e)
		advance(time.Second)
		sent := d.coordinateEvents()
		if len(sent) != 2 || sent[0].EventType() != events.TypeShardReleased ||
			sent[1].EventType() != events.TypeModelMissing {
			t.Errorf("coordinate was sent %v", sent)
		}
	})
}

func TestFailingExecutorReleasesShardsWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		e := &fakeExecutor{answer: func(context.Context, int) error { return fault.New(fault.Denied, "no") },
			fail: func() error { return fault.New(fault.Denied, "unpaid") }}
		d.sendWork(0)
		d.start("w1", e)
		for range 600 { // coordinate sends a released shard again at once
			advance(100 * time.Millisecond)
			for _, p := range d.coordinateEvents() {
				d.sendWork(p.(events.ShardReleased).Shard)
			}
		}
		if n := d.shard(0).Attempt; n < 10 || n > 70 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}

func TestWorkerEndsWhenEngineDeniesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.sendWork(0)
		w := d.start("w1", &fakeExecutor{ready: func() error { return fault.New(fault.Denied, "the key is wrong") }})
		if !w.ended() || !fault.Is(w.err, fault.Denied) {
			t.Fatalf("ended: %v, %v", w.ended(), w.err)
		}
		if d.queued(work) != 1 || d.heartbeat("w1").State != health.Gone {
			t.Errorf("%d messages left, the heartbeat says %s", d.queued(work), d.heartbeat("w1").State)
		}
	})
}

func TestWorkerPullsNothingBeforeEngineIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.sendWork(0)
		loaded := time.Now().Add(30 * time.Second)
		d.start("w1", &fakeExecutor{ready: func() error {
			if time.Now().Before(loaded) {
				return fault.New(fault.Unavailable, "loading")
			}
			return nil
		}})
		advance(29 * time.Second)
		if doc, b := d.shard(0), d.heartbeat("w1"); doc.Attempt != 0 || b.State != health.Init {
			t.Errorf("the shard is %+v, the worker %s", doc, b.State)
		}
		advance(5 * time.Second)
		if doc, b := d.shard(0), d.heartbeat("w1"); doc.State != shard.Done || b.State != health.Ready {
			t.Errorf("the shard is %+v, the worker %s", doc, b.State)
		}
	})
}

func TestMessageOfUnknownRunStaysInQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 1)
		d.send(host.WorkQueue("default"), events.Work{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVZ", Pool: "default"})
		d.start("w1", &fakeExecutor{})
		synctest.Wait()
		if d.queued(work) != 1 {
			t.Error("the message is gone")
		}
	})
}
