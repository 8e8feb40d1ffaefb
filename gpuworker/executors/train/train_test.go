package train

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

func TestTrainingEndsWithFilesRowAndSnapshots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows)
		d.start("w1")
		d.sendWork(0)
		doc := d.until("done", isDone)
		r := d.trained()
		if r.ID != "lesson" || r.Algorithm != "sft" || r.Steps != 10 || r.Rows != 3 ||
			r.TrainLoss == nil || r.Loss <= 0 || r.Accuracy != nil {
			t.Errorf("row %s", brief(r))
		}
		if doc.Snapshot == nil || doc.Snapshot.ID != r.Snapshot || doc.Snapshot.Step != 10 || doc.Counts.OK != 1 {
			t.Errorf("shard %+v", doc)
		}
		snaps, err := d.store.List(t.Context(), snapshot.Filter{Run: run})
		if err != nil || len(snaps) != 2 || snaps[0].ID != r.Snapshot || snaps[0].Label != "final" {
			t.Errorf("the snapshots left are %v, %v; want the last two", snaps, err)
		}
		for i, name := range []string{record.ModelFile, record.CurveFile} {
			f := r.Files[i]
			content := hosttest.Object(t, d.Ports, record.TrainingFileKey(run, f.Content))
			if f.Name != name || int64(len(content)) != f.Length || identity.TextContent(content).String() != f.Content {
				t.Errorf("file %+v of %d bytes", f, len(content))
			}
		}
	})
}

// Workers are killed right after a write of a snapshot's document or of the
// shard's.
func TestTrainingResumedAfterKillEndsWithSameBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := uninterrupted(t)
		for _, c := range []struct {
			after string // prefix of the document's key
			count int    // of writes
		}{
			{"snapshot/", 1}, {"snapshot/", 3}, {"snapshot/", 5}, {"content/", 4},
			{"shard/", 2}, {"shard/", 4}, {"shard/", 6},
		} {
			what := fmt.Sprintf("killed twice after write %d of %s", c.count, c.after)
			d := newFixture(t, rows)
			for i := range 2 {
				w := d.start(fmt.Sprintf("w%d", i))
				n := 0
				d.docs.setHook(func(key string, _ []byte) {
					if strings.HasPrefix(key, c.after) {
						if n++; n == c.count {
							w.kill()
						}
					}
				})
				d.sendWork(i)
				waitDead()
				w.kill() // if it ended before the write
				<-w.done
				d.docs.setHook(nil)
				if d.shard().State == shard.Done { // the second worker ended before the write
					break
				}
				if got := d.shard(); got.State != shard.Running || i == 0 && c.count > 2 && got.Snapshot == nil {
					t.Errorf("%s: the dead worker left %+v", what, got)
				}
			}
			d.start("last")
			d.sendWork(9)
			d.until("done", isDone)
			wantSame(t, what, d.trained(), want)
		}
	})
}

// drainingClock drains a worker at its n-th reading. The executor reads the clock
// before its first step and after each step.
type drainingClock struct {
	clock.Clock
	n int
	w *runningWorker
}

func (c *drainingClock) Now() time.Time {
	if c.n--; c.n == 0 {
		c.w.Drain("test")
	}
	return c.Clock.Now()
}

func TestDrainAtAnyStepKeepsAllSteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := uninterrupted(t)
		for step := 1; step < want.Steps; step++ {
			d := newFixture(t, rows, func(c *config.Run) { c.Snapshot.Every = 0 })
			watch := &drainingClock{Clock: d.Clock, n: 1 + step}
			watch.w = d.startWithClock("w1", watch)
			d.sendWork(0)
			<-watch.w.done
			if watch.w.err != nil {
				t.Errorf("the drain after step %d: %v", step, watch.w.err)
			}
			doc := d.shard()
			if doc.State != shard.Pending || doc.Snapshot == nil || doc.Snapshot.Step != step || doc.VanishedHolders != 0 {
				t.Fatalf("after the drain after step %d: %+v", step, doc)
			}
			d.start("w2")
			d.sendWork(1)
			d.until("done", isDone)
			wantSame(t, fmt.Sprintf("drained after step %d", step), d.trained(), want)
		}
	})
}

// It runs outside of a bubble, whose time stands still during a training.
func TestEndOfRunSealsShardWithSnapshot(t *testing.T) {
	t.Parallel()
	d := newFixture(t, rows, func(c *config.Run) { c.Algorithm.SFT.Budget.MaxSteps = 1_000_000 })
	reported, sealed := make(chan health.Training, 1), make(chan shard.Doc, 1)
	d.docs.setHook(func(key string, value []byte) {
		var b health.Heartbeat
		isHeartbeat := strings.HasPrefix(key, "beat/") && json.Unmarshal(value, &b) == nil
		if isHeartbeat && len(b.Holds) > 0 && b.Holds[0].Training != nil && b.Holds[0].Training.Step > 2 {
			select {
			case reported <- *b.Holds[0].Training:
			default:
			}
		}
		var s shard.Doc
		if strings.HasPrefix(key, "shard/") && json.Unmarshal(value, &s) == nil && s.State == shard.Done {
			sealed <- s
		}
	})
	d.start("w1")
	d.sendWork(0)
	if h := <-reported; h.Steps != 1_000_000 || h.Loss == nil || h.StepRate <= 0 || h.TokenRate <= h.StepRate {
		t.Errorf("its heartbeat reports %+v", h)
	}
	hosttest.Save(t, d.Ports, record.ControlKey(run),
		record.Control{Schema: record.Schema, Sequence: 1, Desired: record.DesiredEnd, Reason: "stopped"})
	doc := <-sealed
	if doc.Sealed != fault.CanceledItem || doc.Result != nil || doc.Snapshot == nil {
		t.Fatalf("%+v", doc)
	}
	if snap, err := d.store.Get(t.Context(), run, doc.Snapshot.ID); err != nil || snap.ID != doc.Snapshot.ID {
		t.Errorf("its last snapshot: %v, %v", snap, err)
	}
}

func TestDamagedSnapshotCostsOnlySteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := uninterrupted(t)
		for _, all := range []bool{false, true} {
			d := newFixture(t, rows)
			w := d.start("w1")
			d.docs.setHook(func(key string, value []byte) {
				var s shard.Doc
				isShard := strings.HasPrefix(key, "shard/") && json.Unmarshal(value, &s) == nil
				if isShard && s.Snapshot != nil && s.Snapshot.Step >= 4 {
					w.kill()
				}
			})
			d.sendWork(0)
			waitDead()
			d.docs.setHook(nil)
			kept := d.shard().Snapshot
			snaps, err := d.store.List(t.Context(), snapshot.Filter{Run: run})
			if err != nil || kept == nil {
				t.Fatalf("%v, %v", kept, err)
			}
			for _, s := range snaps {
				if id, _ := identity.ParseContentID(s.ID); all || s.ID == kept.ID {
					damaged := strings.NewReader("damaged")
					if _, err := d.Blobs.Put(t.Context(), identity.ContentKey(id), damaged, blob.PutOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			d.start("w2")
			d.sendWork(1)
			d.until("done", isDone)
			wantSame(t, fmt.Sprintf("all damaged: %v", all), d.trained(), want)
		}
	})
}

func TestUntrainableRunGetsErrorRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for why, c := range map[string]struct {
			rows   string
			change func(*config.Run)
			class  fault.Class
			want   string
		}{
			"bad row":     {rows + "{\"prompt\":1}\n", nil, fault.InvalidLine, "prompts/lesson.jsonl:4: "},
			"cut-off row": {rows + "{\"prompt\":\"", nil, fault.InvalidLine, "prompts/lesson.jsonl:4: "},
			"diverges": {rows, func(c *config.Run) {
				c.Algorithm.SFT.Optimizer, c.Algorithm.SFT.Budget.MaxSteps = divergingOptimizer(), 50
			}, fault.Diverged, "the training diverged at step"},
			"no base model": {rows, func(c *config.Run) {
				c.Algorithm.SFT.BaseModel.URI = config.SnapshotPrefix + strings.Repeat("0", 64)
			}, fault.Refused, "snapshot not found"},
			"too long": {rows, func(c *config.Run) { c.Algorithm.SFT.Packing.MaxSeqLen = 4096 },
				fault.Refused, "max_seq_len is 4096, the model's context is 48"},
		} {
			d := newFixture(t, c.rows, func(r *config.Run) {
				if c.change != nil {
					c.change(r)
				}
			})
			d.start("w1")
			d.sendWork(0)
			doc := d.until("done", isDone)
			if row := d.row(); doc.Counts.ByClass[string(c.class)] != 1 || !strings.Contains(row, c.want) ||
				!strings.Contains(row, `"id":"lesson"`) {
				t.Errorf("%s: %v %s", why, doc.Counts.ByClass, row)
			}
		}
	})
}

// divergingOptimizer returns settings with which every training diverges.
func divergingOptimizer() config.Optimizer {
	o := config.DefaultSFT().Optimizer
	o.Kind, o.LR, o.WeightDecay, o.MaxGradNorm = config.OptimizerSGD, 1000, 1, 0
	return o
}

func TestMissingOrChangedDatasetIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			damage func(d *fixture)
			is     func(p events.Payload) bool
		}{
			"replaced by rows of its size": {func(d *fixture) {
				hosttest.Put(t, d.Ports, "prompts/lesson.jsonl", strings.Replace(rows, "a", "b", 1))
			}, func(p events.Payload) bool { _, ok := p.(events.InputChanged); return ok }},
			"replaced": {func(d *fixture) { hosttest.Put(t, d.Ports, "prompts/lesson.jsonl", rows+rows) },
				func(p events.Payload) bool { _, ok := p.(events.InputChanged); return ok }},
			"missing": {func(d *fixture) {
				if err := d.Blobs.Delete(t.Context(), "prompts/lesson.jsonl", ""); err != nil {
					t.Fatal(err)
				}
			}, func(p events.Payload) bool { _, ok := p.(events.InputMissing); return ok }},
		} {
			d := newFixture(t, rows)
			c.damage(d)
			d.start("w1")
			d.sendWork(0)
			time.Sleep(time.Second)
			reported := false
			for _, p := range d.coordinateEvents() {
				reported = reported || c.is(p)
			}
			if doc := d.shard(); !reported || doc.State != shard.Pending {
				t.Errorf("%s: reported %v, the shard is %+v", what, reported, doc)
			}
		}
	})
}

func TestTrainingThatKillsItsWorkersGetsErrorRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows)
		doc := shard.New(run, 0)
		for i := range maxVanished {
			var err error
			doc, err = doc.Claim(fmt.Sprintf("dead%d", i), d.Clock.Now(), shard.HolderVanishedBlameless)
			if err != nil {
				t.Fatal(err)
			}
		}
		hosttest.Save(t, d.Ports, identity.ShardKey(run, 0), doc)
		waitDead()
		d.start("w1")
		d.sendWork(1)
		got := d.until("done", isDone)
		const want = "5 consecutive workers died during the training from the start"
		if row := d.row(); got.Counts.ByClass[string(fault.Poison)] != 1 || !strings.Contains(row, want) {
			t.Errorf("%v %s, want %q", got.Counts.ByClass, row, want)
		}
	})
}

// panickingClock panics at its n-th reading.
type panickingClock struct {
	clock.Clock
	n int
}

func (c *panickingClock) Now() time.Time {
	if c.n--; c.n == 0 {
		panic("the clock is broken")
	}
	return c.Clock.Now()
}

func TestPanicEndsTrainingButNotProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows)
		w := d.startWithClock("w1", &panickingClock{d.Clock, 4})
		d.sendWork(0)
		doc := d.until("done", isDone)
		const want = "the trainer panicked: the clock is broken"
		if row := d.row(); doc.Counts.ByClass[string(fault.Engine)] != 1 || !strings.Contains(row, want) {
			t.Errorf("%v %s, want %q", doc.Counts.ByClass, row, want)
		}
		select {
		case <-w.done:
			t.Errorf("the worker ended: %v", w.err)
		default:
		}
	})
}

func TestShippedModelIsTrained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows, func(c *config.Run) {
			s := c.Algorithm.SFT
			s.BaseModel.URI, s.Budget.MaxSteps, s.Minibatch = config.ModelTiny, 1, 1
		})
		d.start("w1")
		d.sendWork(0)
		d.until("done", isDone)
		if r := d.trained(); r.BaseModel != config.ModelTiny || r.Steps != 1 {
			t.Errorf("row %s", brief(r))
		}
	})
}
