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

func TestATrainingLeavesItsModelItsCurveAndItsLastState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows)
		d.start("w1")
		d.offer(0)
		doc := d.until("done", isDone)
		r := d.trained()
		if r.ID != "lesson" || r.Algorithm != "sft" || r.Steps != 10 || r.Rows != 3 || r.TrainLoss == nil || r.Loss <= 0 || r.Accuracy != nil {
			t.Errorf("row %s", brief(r))
		}
		if doc.Snapshot == nil || doc.Snapshot.ID != r.Snapshot || doc.Snapshot.Step != 10 || doc.Counts.OK != 1 {
			t.Errorf("shard %+v", doc)
		}
		snaps, err := d.store.List(t.Context(), snapshot.Filter{Run: run})
		if err != nil || len(snaps) != 2 || snaps[0].ID != r.Snapshot || snaps[0].Label != "final" {
			t.Errorf("of the snapshots stay %v, %v; want the last two", snaps, err)
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

// The process may die anywhere: right after a snapshot's document was written,
// or the shard's, or amid steps.
func TestALostWorkersSuccessorEndsWithTheSameBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := undisturbed(t)
		for _, c := range []struct {
			after string // documents whose key begins so
			count int
		}{{"snapshot/", 1}, {"snapshot/", 3}, {"snapshot/", 5}, {"content/", 4}, {"shard/", 2}, {"shard/", 4}, {"shard/", 6}} {
			what := fmt.Sprintf("killed twice after write %d of %s", c.count, c.after)
			d := newFixture(t, rows)
			for i := range 2 {
				w := d.start(fmt.Sprintf("w%d", i))
				n := 0
				d.docs.hear(func(key string, _ []byte) {
					if strings.HasPrefix(key, c.after) {
						if n++; n == c.count {
							w.kill()
						}
					}
				})
				d.offer(i)
				dead()
				w.kill() // if it got to the end before
				<-w.done
				d.docs.hear(nil)
				if d.shard().State == shard.Done { // the second got further than that
					break
				}
				if got := d.shard(); got.State != shard.Running || i == 0 && c.count > 2 && got.Snapshot == nil {
					t.Errorf("%s: the dead worker left %+v", what, got)
				}
			}
			d.start("last")
			d.offer(9)
			d.until("done", isDone)
			same(t, what, d.trained(), want)
		}
	})
}

// drained is a clock that drains a worker when it is asked for the n-th time:
// the executor does so before its first step and after each.
type drained struct {
	clock.Clock
	n int
	w *runningWorker
}

func (c *drained) Now() time.Time {
	if c.n--; c.n == 0 {
		c.w.Drain("test")
	}
	return c.Clock.Now()
}

func TestADrainAtAnyStepKeepsTheStepsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := undisturbed(t)
		for step := 1; step < want.Steps; step++ {
			d := newFixture(t, rows, func(c *config.Run) { c.Snapshot.Every = 0 })
			watch := &drained{Clock: d.Clock, n: 1 + step}
			watch.w = d.startBy("w1", watch)
			d.offer(0)
			<-watch.w.done
			if watch.w.err != nil {
				t.Errorf("the drain after step %d: %v", step, watch.w.err)
			}
			doc := d.shard()
			if doc.State != shard.Pending || doc.Snapshot == nil || doc.Snapshot.Step != step || doc.VanishedHolders != 0 {
				t.Fatalf("after the drain after step %d: %+v", step, doc)
			}
			d.start("w2")
			d.offer(1)
			d.until("done", isDone)
			same(t, fmt.Sprintf("drained after step %d", step), d.trained(), want)
		}
	})
}

// In the time of all: a training that goes on keeps a bubble's from passing.
func TestAStopSealsTheShardAndKeepsTheSnapshot(t *testing.T) {
	t.Parallel()
	d := newFixture(t, rows, func(c *config.Run) { c.Algorithm.SFT.Budget.MaxSteps = 1_000_000 })
	told, sealed := make(chan health.Training, 1), make(chan shard.Doc, 1)
	d.docs.hear(func(key string, value []byte) {
		var b health.Heartbeat
		if strings.HasPrefix(key, "beat/") && json.Unmarshal(value, &b) == nil && len(b.Holds) > 0 && b.Holds[0].Training != nil && b.Holds[0].Training.Step > 2 {
			select {
			case told <- *b.Holds[0].Training:
			default:
			}
		}
		var s shard.Doc
		if strings.HasPrefix(key, "shard/") && json.Unmarshal(value, &s) == nil && s.State == shard.Done {
			sealed <- s
		}
	})
	d.start("w1")
	d.offer(0)
	if h := <-told; h.Steps != 1_000_000 || h.Loss == nil || h.StepRate <= 0 || h.TokenRate <= h.StepRate {
		t.Errorf("its heartbeat tells %+v", h)
	}
	hosttest.Save(t, d.Ports, record.ControlKey(run), record.Control{Schema: record.Schema, Sequence: 1, Desired: record.DesiredEnd, Reason: "stopped"})
	doc := <-sealed
	if doc.Sealed != fault.CanceledItem || doc.Result != nil || doc.Snapshot == nil {
		t.Fatalf("%+v", doc)
	}
	if snap, err := d.store.Get(t.Context(), run, doc.Snapshot.ID); err != nil || snap.ID != doc.Snapshot.ID {
		t.Errorf("its last snapshot: %v, %v", snap, err)
	}
}

func TestADamagedSnapshotCostsOnlySteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := undisturbed(t)
		for _, all := range []bool{false, true} {
			d := newFixture(t, rows)
			w := d.start("w1")
			d.docs.hear(func(key string, value []byte) {
				var s shard.Doc
				if strings.HasPrefix(key, "shard/") && json.Unmarshal(value, &s) == nil && s.Snapshot != nil && s.Snapshot.Step >= 4 {
					w.kill()
				}
			})
			d.offer(0)
			dead()
			d.docs.hear(nil)
			kept := d.shard().Snapshot
			snaps, err := d.store.List(t.Context(), snapshot.Filter{Run: run})
			if err != nil || kept == nil {
				t.Fatalf("%v, %v", kept, err)
			}
			for _, s := range snaps {
				if id, _ := identity.ParseContentID(s.ID); all || s.ID == kept.ID {
					if _, err := d.Blobs.Put(t.Context(), identity.ContentKey(id), strings.NewReader("damaged"), blob.PutOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			d.start("w2")
			d.offer(1)
			d.until("done", isDone)
			same(t, fmt.Sprintf("all damaged: %v", all), d.trained(), want)
		}
	})
}

func TestWhatCanNotBeTrainedIsAnErrorRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for why, c := range map[string]struct {
			rows   string
			change func(*config.Run)
			class  fault.Class
			want   string
		}{
			"bad row":       {rows + "{\"prompt\":1}\n", nil, fault.InvalidLine, "prompts/lesson.jsonl:4: "},
			"cut-off row":   {rows + "{\"prompt\":\"", nil, fault.InvalidLine, "prompts/lesson.jsonl:4: "},
			"diverges":      {rows, func(c *config.Run) { c.Algorithm.SFT.Optimizer, c.Algorithm.SFT.Budget.MaxSteps = wild(), 50 }, fault.Diverged, "the training diverged at step"},
			"no base model": {rows, func(c *config.Run) { c.Algorithm.SFT.BaseModel.URI = config.SnapshotPrefix + strings.Repeat("0", 64) }, fault.Refused, "snapshot not found"},
			"too long":      {rows, func(c *config.Run) { c.Algorithm.SFT.Packing.MaxSeqLen = 4096 }, fault.Refused, "max_seq_len is 4096, the model's context is 48"},
		} {
			d := newFixture(t, c.rows, func(r *config.Run) {
				if c.change != nil {
					c.change(r)
				}
			})
			d.start("w1")
			d.offer(0)
			doc := d.until("done", isDone)
			if row := d.row(); doc.Counts.ByClass[string(c.class)] != 1 || !strings.Contains(row, c.want) || !strings.Contains(row, `"id":"lesson"`) {
				t.Errorf("%s: %v %s", why, doc.Counts.ByClass, row)
			}
		}
	})
}

// wild are settings that no model survives.
func wild() config.Optimizer {
	o := config.DefaultSFT().Optimizer
	o.Kind, o.LR, o.WeightDecay, o.MaxGradNorm = config.OptimizerSGD, 1000, 1, 0
	return o
}

func TestADatasetThatIsNotThePlannedOneIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			harm func(d *fixture)
			is   func(p events.Payload) bool
		}{
			"replaced": {func(d *fixture) { hosttest.Put(t, d.Ports, "prompts/lesson.jsonl", rows+rows) },
				func(p events.Payload) bool { _, ok := p.(events.InputChanged); return ok }},
			"gone": {func(d *fixture) {
				if err := d.Blobs.Delete(t.Context(), "prompts/lesson.jsonl", ""); err != nil {
					t.Fatal(err)
				}
			}, func(p events.Payload) bool { _, ok := p.(events.InputMissing); return ok }},
		} {
			d := newFixture(t, rows)
			c.harm(d)
			d.start("w1")
			d.offer(0)
			time.Sleep(time.Second)
			told := false
			for _, p := range d.heard() {
				told = told || c.is(p)
			}
			if doc := d.shard(); !told || doc.State != shard.Pending {
				t.Errorf("%s: told %v, the shard is %+v", what, told, doc)
			}
		}
	})
}

func TestATrainingThatKillsItsWorkersEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows)
		doc := shard.New(run, 0)
		for i := range giveUp {
			var err error
			if doc, err = doc.Claim(fmt.Sprintf("dead%d", i), 0, d.Clock.Now(), shard.HolderVanishedBlameless); err != nil {
				t.Fatal(err)
			}
		}
		hosttest.Save(t, d.Ports, identity.ShardKey(run, 0), doc)
		dead()
		d.start("w1")
		d.offer(1)
		got := d.until("done", isDone)
		if row := d.row(); got.Counts.ByClass[string(fault.Poison)] != 1 || !strings.Contains(row, "5 workers in a row died of the training on its way from its beginning") {
			t.Errorf("%v %s", got.Counts.ByClass, row)
		}
	})
}

// broken is a clock that panics at the n-th look.
type broken struct {
	clock.Clock
	n int
}

func (c *broken) Now() time.Time {
	if c.n--; c.n == 0 {
		panic("the clock is broken")
	}
	return c.Clock.Now()
}

func TestAPanicEndsTheTrainingAndNotTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows)
		w := d.startBy("w1", &broken{d.Clock, 4})
		d.offer(0)
		doc := d.until("done", isDone)
		if row := d.row(); doc.Counts.ByClass[string(fault.Engine)] != 1 || !strings.Contains(row, "the trainer failed by a fault of its own: the clock is broken") {
			t.Errorf("%v %s", doc.Counts.ByClass, row)
		}
		select {
		case <-w.done:
			t.Errorf("the worker ended: %v", w.err)
		default:
		}
	})
}

func TestTheModelThatRolloutComesWithIsTrained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newFixture(t, rows, func(c *config.Run) {
			c.Algorithm.SFT.BaseModel.URI, c.Algorithm.SFT.Budget.MaxSteps, c.Algorithm.SFT.Minibatch = config.ModelTiny, 1, 1
		})
		d.start("w1")
		d.offer(0)
		d.until("done", isDone)
		if r := d.trained(); r.BaseModel != config.ModelTiny || r.Steps != 1 {
			t.Errorf("row %s", brief(r))
		}
	})
}
