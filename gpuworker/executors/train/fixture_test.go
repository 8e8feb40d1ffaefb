package train

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/training"
	"rollout/gpuworker/training/dataset"
	"rollout/gpuworker/worker"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

const rows = `{"prompt":"the cat ","completion":"sat on the mat"}
{"messages":[{"role":"user","content":"two and two?"},{"role":"assistant","content":"four"}]}
{"prompt":"","completion":"in the beginning"}
`

const run = inputtest.RunID

// fixture has in-memory stores with one planned training.
type fixture struct {
	host.Ports
	t     *testing.T
	docs  *documents
	store snapshot.Store
}

// documents calls a hook after each write.
type documents struct {
	document.Store
	mu      sync.Mutex
	onWrite func(key string, value []byte) // may be nil
}

func (d *documents) written(key string, value []byte, err error) {
	d.mu.Lock()
	f := d.onWrite
	d.mu.Unlock()
	if err == nil && f != nil {
		f(key, value)
	}
}

// setHook sets the hook; nil removes it.
func (d *documents) setHook(f func(key string, value []byte)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onWrite = f
}

func (d *documents) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	rev, err := d.Store.Create(ctx, key, value)
	d.written(key, value, err)
	return rev, err
}

func (d *documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error) {
	rev, err := d.Store.Replace(ctx, key, value, rev)
	d.written(key, value, err)
	return rev, err
}

// tickingClock advances at each reading. The clock of a synctest bubble stands
// still during a computation.
type tickingClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *tickingClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	return c.now
}

// newFixture plans a training of ten steps on the rows, with a snapshot every two.
func newFixture(t *testing.T, content string, change ...func(*config.Run)) *fixture {
	t.Helper()
	p := hosttest.New()
	docs := &documents{Store: p.Docs}
	p.Docs = docs
	d := &fixture{Ports: p, t: t, docs: docs,
		store: snapshot.Store{Blobs: p.Blobs, Docs: docs, Clock: &tickingClock{now: p.Clock.Now()}}}
	s := config.DefaultSFT()
	s.BaseModel.URI, s.Minibatch, s.Budget.MaxSteps = config.SnapshotPrefix+d.base(), 2, 10
	s.Optimizer.LR = 0.01
	m := inputtest.Manifest(1)
	m.Kind, m.Name = config.KindTrain, "lesson"
	m.Config.Algorithm = &config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}
	m.Config.Snapshot = &config.Snapshots{Every: 2, KeepLast: 2}
	m.Config.Limits.Grace = config.Duration(3 * time.Second)
	for _, f := range change {
		f(&m.Config)
	}
	key := "prompts/lesson.jsonl"
	version := hosttest.Put(t, p, key, content)
	job, err := json.Marshal(record.Job{ID: "lesson", Prompt: "train sft on " + key,
		Dataset: record.Dataset{Key: key, Version: version, Size: int64(len(content)), Name: key,
			Digest: identity.Content([]byte(content)).String()}})
	if err != nil {
		t.Fatal(err)
	}
	inputtest.Plan(t, p, m, string(job)+"\n")
	return d
}

// base makes a small base model and returns the id of its snapshot.
func (d *fixture) base() string {
	d.t.Helper()
	tok, err := tokenizer.New(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	m, err := model.New(model.Config{Vocab: 260, Width: 16, Layers: 1, Heads: 2, HeadSize: 8, Hidden: 24,
		Context: 48, RopeBase: 10000, NormEpsilon: 1e-5}, 7)
	if err != nil {
		d.t.Fatal(err)
	}
	path := filepath.Join(d.t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(rows), 0o600); err != nil {
		d.t.Fatal(err)
	}
	f, err := dataset.OpenFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	index, err := training.OpenDataset(d.t.Context(), config.AlgorithmSFT, f)
	if err != nil {
		d.t.Fatal(err)
	}
	s := config.DefaultSFT()
	s.BaseModel.URI, s.Budget.MaxSteps, s.Optimizer.LR = config.ModelTiny, 1, 0.1
	tr, err := training.New(training.Options{Algorithm: config.Algorithm{Kind: config.AlgorithmSFT, SFT: s},
		Dataset: index, Threads: 1,
		Base: training.Base{URI: config.ModelTiny, Model: m, Tokenizer: tok}})
	if err != nil {
		d.t.Fatal(err)
	}
	folder := d.t.TempDir()
	if err := tr.Save(folder); err != nil {
		d.t.Fatal(err)
	}
	snap, err := d.store.Save(d.t.Context(), os.DirFS(folder),
		snapshot.Details{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVZ", Kind: snapshot.TrainState, Algorithm: "sft"})
	if err != nil {
		d.t.Fatal(err)
	}
	return snap.ID
}

// runningWorker is a worker whose Run is under way.
type runningWorker struct {
	*worker.Worker
	kill context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

func (d *fixture) start(id string) *runningWorker { return d.startWithClock(id, d.Clock) }

// startWithClock starts a worker whose executor uses the clock.
func (d *fixture) startWithClock(id string, c clock.Clock) *runningWorker {
	cfg := worker.Config{ID: id, Pool: "default", InFlight: 1,
		Timings:            host.Timings(config.DefaultDeployment().Health),
		CheckpointInterval: time.Minute, Drain: 8 * time.Second, Grace: 3 * time.Second}
	ctx, cancel := context.WithCancel(d.t.Context())
	exec := New(Config{Blobs: d.Blobs, Snapshots: d.store, Clock: c, Log: d.Log, Scratch: d.t.TempDir(), Threads: 1})
	w := worker.New(d.Ports, cfg, input.NewIndex(d.Blobs, d.Docs), exec)
	l := &runningWorker{Worker: w, kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = l.Run(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-l.done })
	return l
}

// sendWork sends the shard's work message.
func (d *fixture) sendWork(generation int) {
	d.t.Helper()
	work := events.Work{Run: string(run), Generation: generation, Pool: "default"}
	if err := d.Send(d.t.Context(), host.WorkQueue("default"), work); err != nil {
		d.t.Fatal(err)
	}
}

func (d *fixture) shard() shard.Doc {
	doc := shard.New(run, 0)
	if _, _, err := host.Load(d.t.Context(), d.Docs, identity.ShardKey(run, 0), &doc); err != nil {
		d.t.Fatal(err)
	}
	return doc
}

// until waits until the shard's document matches.
func (d *fixture) until(what string, is func(shard.Doc) bool) shard.Doc {
	d.t.Helper()
	for range 600 {
		if doc := d.shard(); is(doc) {
			return doc
		}
		time.Sleep(100 * time.Millisecond) // in the bubble's time
	}
	d.t.Fatalf("the shard is not %s within a minute: %+v", what, d.shard())
	return shard.Doc{}
}

func isDone(d shard.Doc) bool { return d.State == shard.Done }

// row returns the shard's one row.
func (d *fixture) row() string {
	d.t.Helper()
	doc := d.shard()
	if doc.Result == nil {
		d.t.Fatalf("no result: %+v", doc)
	}
	return hosttest.Object(d.t, d.Ports, doc.Result.Key)
}

func (d *fixture) trained() (r record.Trained) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.row()), &r); err != nil {
		d.t.Fatal(err)
	}
	return r
}

// coordinateEvents returns the events sent to coordinate.
func (d *fixture) coordinateEvents() (out []events.Payload) {
	ms, err := d.Queues.Receive(d.t.Context(), host.CoordinateQueue, 100, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range ms {
		_, p, err := events.Decode(m.Body)
		if err != nil {
			d.t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// uninterrupted returns the row of a training without interruptions.
func uninterrupted(t *testing.T) record.Trained {
	t.Helper()
	d := newFixture(t, rows)
	d.start("w0")
	d.sendWork(0)
	d.until("done", isDone)
	return d.trained()
}

// waitDead waits until a killed worker counts as dead.
func waitDead() { time.Sleep(10 * time.Second) }

// wantSame checks that a training ends like an uninterrupted one.
func wantSame(t *testing.T, what string, got, want record.Trained) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", brief(got)), fmt.Sprintf("%+v", brief(want)); g != w {
		t.Errorf("%s: it ends with\n%s, uninterrupted with\n%s", what, g, w)
	}
}

// brief renders a row without pointers.
func brief(r record.Trained) string {
	b, _ := json.Marshal(r) // the struct can always be encoded
	return strings.TrimSpace(string(b))
}
