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
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

func TestAResultHoldsEveryRowInItemOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 5)
		d.offer(0)
		d.start("w1", &engine{answer: func(ctx context.Context, n int) error { // later ones come first
			return takes(ctx, time.Duration(10-n)*time.Second)
		}}, func(c *worker.Config) { c.InFlight = 5 })
		pass(time.Minute)
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Counts.OK != 5 || doc.Counts.CompletionTokens != 5 || doc.Checkpoint != nil || doc.Items != 5 {
			t.Fatalf("the shard is %+v", doc)
		}
		if got := inputtest.Object(t, d.Ports, doc.Result.Key); got != "0\n1\n2\n3\n4\n" || doc.OutputLen != int64(len(got)) {
			t.Errorf("the result is %q, %d of it output", got, doc.OutputLen)
		}
		said := d.heard()
		if len(said) != 1 || said[0].(events.ShardDone).Digest != doc.Result.Digest {
			t.Errorf("coordinate was told %v", said)
		}
	})
}

func TestACheckpointOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.offer(0)
		first := &engine{answer: evenQuick}
		quick := func(c *worker.Config) { c.CheckpointInterval, c.InFlight = 5*time.Second, 4 }
		w := d.start("w1", first, quick)
		pass(6 * time.Second)
		if doc := d.shard(0); doc.Checkpoint == nil || doc.Counts.OK != 2 || doc.State != shard.Running {
			t.Fatalf("after the first interval the shard is %+v", doc)
		}
		pass(20 * time.Second)
		if n := len(objects(d)); n != 1 {
			t.Errorf("%d checkpoints were written, want none without news", n)
		}
		w.kill()
		pass(10 * time.Second)

		d.offer(0)
		second := &engine{}
		d.start("w2", second)
		pass(time.Second)
		if got := second.questions(); !slices.Equal(got, []int{1, 3}) {
			t.Errorf("asked %v again, want those without an answer", got)
		}
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Attempt != 2 || doc.Counts.OK != 4 {
			t.Fatalf("the shard is %+v", doc)
		}
		if got := inputtest.Object(t, d.Ports, doc.Result.Key); got != "0\n1\n2\n3\n" {
			t.Errorf("the result is %q", got)
		}
	})
}

// objects are the keys put for shard 0.
func objects(d *fixture) []string {
	var keys []string
	for _, c := range d.stores.log() {
		if c.what == "put" && strings.HasPrefix(c.key, record.WorkPrefix+string(run)+"/shards/") {
			keys = append(keys, c.key)
		}
	}
	return keys
}

func TestALostOrDamagedCheckpointCostsOnlyItsAnswers(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*fixture, string){
		"lost":    func(d *fixture, key string) { _ = d.Blobs.Delete(d.t.Context(), key, "") },
		"damaged": func(d *fixture, key string) { inputtest.Put(d.t, d.Ports, key, "something else") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 4)
				d.offer(0)
				w := d.start("w1", &engine{answer: evenQuick})
				pass(3 * time.Second)
				w.Drain("go")
				pass(20 * time.Second)
				damage(d, d.shard(0).Checkpoint.Key)
				d.heard()

				d.offer(0)
				e := &engine{}
				d.start("w2", e)
				pass(time.Second)
				doc := d.shard(0)
				if doc.State != shard.Done || doc.Counts.OK != 4 || len(e.questions()) != 4 {
					t.Errorf("the shard is %+v, asked %v", doc, e.questions())
				}
				if said := d.heard(); len(said) != 1 {
					t.Errorf("coordinate was told %v, want that the shard is done", said)
				}
			})
		})
	}
}

func TestNoAnswerIsLostToAStoreThatFailsForAWhile(t *testing.T) {
	t.Parallel()
	key := identity.ShardKey(run, 0)
	for name, fails := range map[string]func(c call) fault.Kind{
		"the disk is full":               func(c call) fault.Kind { return pick(c.what == "put", fault.Exhausted) },
		"the bucket is down":             func(c call) fault.Kind { return pick(c.what == "put", fault.Unavailable) },
		"the documents can't be written": func(c call) fault.Kind { return pick(c.what == "write" && c.key == key, fault.Unavailable) },
		"somebody wrote first, and then the documents can't be read": func(c call) fault.Kind {
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
				e := &engine{answer: func(ctx context.Context, _ int) error { return takes(ctx, time.Second) }}
				d.offer(0)
				d.start("w1", e)
				pass(500 * time.Millisecond)
				d.stores.failing(func(c call) error {
					if k := fails(c); k != none {
						return fault.New(k, "injected")
					}
					return nil
				})
				pass(time.Minute)
				if doc := d.shard(0); doc.State != shard.Running {
					t.Fatalf("the shard is %s while the store fails", doc.State)
				}
				d.stores.failing(nil)
				pass(3 * time.Second)
				if doc := d.shard(0); doc.State != shard.Done || doc.Attempt != 1 || doc.Counts.OK != 2 {
					t.Errorf("the shard is %+v", doc)
				}
				if n := len(e.questions()); n != 2 {
					t.Errorf("%d requests for 2 items", n)
				}
			})
		})
	}
}

const none = fault.Internal // a kind that no case injects

func pick(when bool, k fault.Kind) fault.Kind {
	if when {
		return k
	}
	return none
}

func TestWhoLosesTheRaceAtTheCommitSaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		d.offer(0)
		e := &engine{answer: func(ctx context.Context, _ int) error { return takes(ctx, 2*time.Second) }}
		d.start("w1", e)
		pass(time.Second)
		doc := d.shard(0)
		doc.Worker, doc.Attempt = "w2", 2
		inputtest.Save(t, d.Ports, identity.ShardKey(run, 0), doc)
		pass(5 * time.Second)
		if got := d.shard(0); got.Worker != "w2" || got.State != shard.Running {
			t.Errorf("the winner's shard was overwritten: %+v", got)
		}
		if said := d.heard(); len(said) != 0 {
			t.Errorf("coordinate was told %v", said)
		}
		d.offer(1)
		pass(5 * time.Second)
		if got := d.shard(1); got.State != shard.Done {
			t.Errorf("the worker does not go on: %+v", got)
		}
	})
}

// I11: a worker that can't renew its lease writes no more once the self-fence
// time is over, before anybody else may take over.
func TestAWorkerWithoutALeaseFencesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		e := &engine{answer: func(ctx context.Context, _ int) error {
			<-time.After(6 * time.Second) // it does not heed ctx
			return nil
		}}
		d.offer(0, 1)
		w := d.start("w1", e)
		pass(time.Second)
		sent := d.beat("w1").At
		d.stores.failing(func(c call) error {
			if c.what == "write" && strings.HasPrefix(c.key, "beat/") {
				return fault.New(fault.Unavailable, "the store is down")
			}
			return nil
		})
		pass(20 * time.Second)
		if !w.over() || !fault.Is(w.err, fault.Fenced) {
			t.Fatalf("over: %v, %v", w.over(), w.err)
		}
		over := sent.Add(4 * time.Second)
		for _, c := range d.stores.log() {
			if c.at.After(over) && (c.what == "write" || c.what == "put" || c.what == "send") {
				t.Errorf("%s of %s, %s after the lease", c.what, c.key, c.at.Sub(over))
			}
		}
		for n := range 2 {
			if doc := d.shard(n); doc.State != shard.Running {
				t.Errorf("shard %d is %s", n, doc.State)
			}
		}
		if b := d.beat("w1"); b.State == health.Gone {
			t.Error("it says that it has gone")
		}
	})
}

func TestLinesThatCannotBeReadYetAreWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		down := func(c call) error {
			if c.what == "get" && strings.HasPrefix(c.key, record.PromptsPrefix) {
				return fault.New(fault.Unavailable, "the bucket is down")
			}
			return nil
		}
		d.stores.failing(down)
		d.offer(0, 1)
		d.start("w1", &engine{})
		pass(5 * time.Second)
		if said := d.heard(); len(said) != 0 {
			t.Errorf("coordinate was told %v, and sends the shards back at once", said)
		}
		d.stores.failing(nil)
		pass(5 * time.Second)
		for n := range 2 {
			if doc := d.shard(n); doc.State != shard.Done || doc.Attempt != 1 {
				t.Errorf("shard %d is %+v", n, doc)
			}
		}
	})
}

func TestAnInputThatIsGoneOrChangedIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(*fixture)
		want events.Type
	}{
		"gone":    {func(d *fixture) { _ = d.Blobs.Delete(d.t.Context(), "prompts/0.jsonl", "") }, events.TypeInputMissing},
		"changed": {func(d *fixture) { inputtest.Put(d.t, d.Ports, "prompts/0.jsonl", "{}\n") }, events.TypeInputChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 2)
				c.harm(d)
				d.offer(0)
				d.start("w1", &engine{})
				pass(time.Second)
				said := d.heard()
				if len(said) != 2 || said[0].EventType() != events.TypeShardReleased || said[1].EventType() != c.want {
					t.Errorf("coordinate was told %v", said)
				}
				if doc := d.shard(0); doc.State != shard.Pending {
					t.Errorf("the shard is %+v", doc)
				}
			})
		})
	}
}

func TestARunOfAnotherModelIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		e := &engine{answer: func(context.Context, int) error { return fault.New(fault.Denied, "no") },
			fail: func() error { return fault.WithKind(fault.Denied, worker.ErrModelMismatch, "run") }}
		d.offer(0)
		d.start("w1", e)
		pass(time.Second)
		said := d.heard()
		if len(said) != 2 || said[0].EventType() != events.TypeShardReleased || said[1].EventType() != events.TypeModelMissing {
			t.Errorf("coordinate was told %v", said)
		}
	})
}

func TestAnExecutorAtFaultHandsBackAndIsNotFedInAHurry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		e := &engine{answer: func(context.Context, int) error { return fault.New(fault.Denied, "no") },
			fail: func() error { return fault.New(fault.Denied, "unpaid") }}
		d.offer(0)
		d.start("w1", e)
		for range 600 { // coordinate sends what comes back at once
			pass(100 * time.Millisecond)
			for _, p := range d.heard() {
				d.offer(p.(events.ShardReleased).Shard)
			}
		}
		if n := d.shard(0).Attempt; n < 10 || n > 70 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}

func TestAnEngineThatRefusesItsWorkerEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.offer(0)
		w := d.start("w1", &engine{ready: func() error { return fault.New(fault.Denied, "the key is wrong") }})
		if !w.over() || !fault.Is(w.err, fault.Denied) {
			t.Fatalf("over: %v, %v", w.over(), w.err)
		}
		if d.waiting(work) != 1 || d.beat("w1").State != health.Gone {
			t.Errorf("%d messages left, the heartbeat says %s", d.waiting(work), d.beat("w1").State)
		}
	})
}

func TestAWorkerPullsNothingBeforeItsEngineIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		d.offer(0)
		loaded := time.Now().Add(30 * time.Second)
		d.start("w1", &engine{ready: func() error {
			if time.Now().Before(loaded) {
				return fault.New(fault.Unavailable, "it loads")
			}
			return nil
		}})
		pass(29 * time.Second)
		if doc, b := d.shard(0), d.beat("w1"); doc.Attempt != 0 || b.State != health.Init {
			t.Errorf("the shard is %+v, the worker %s", doc, b.State)
		}
		pass(5 * time.Second)
		if doc, b := d.shard(0), d.beat("w1"); doc.State != shard.Done || b.State != health.Ready {
			t.Errorf("the shard is %+v, the worker %s", doc, b.State)
		}
	})
}

func TestAMessageOfAnUnknownRunIsLeftForLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 1)
		d.send(host.WorkQueue("default"), events.Work{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVZ", Pool: "default"})
		d.start("w1", &engine{})
		synctest.Wait()
		if d.waiting(work) != 1 {
			t.Error("the message is gone")
		}
	})
}
