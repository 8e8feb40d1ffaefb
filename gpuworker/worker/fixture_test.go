package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const run = inputtest.RunID

// fixture is a world in memory with one planned run, seen through stores that can
// be made to fail.
type fixture struct {
	host.Ports
	t      *testing.T
	stores *stores
}

// newFixture plans a run of shards of so many prompts, numbered from 0.
func newFixture(t *testing.T, shards, items int) *fixture {
	t.Helper()
	s := &stores{docs: memory.NewDocuments(), bucket: memory.NewBucket(clock.System{}), queues: memory.NewQueues(clock.System{})}
	p := host.Ports{Blobs: blobs{s.bucket, s}, Docs: docs{s.docs, s}, Queues: queues{s.queues, s},
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "test"}
	m := inputtest.Manifest(items)
	m.Config.Limits.Grace = config.Duration(3 * time.Second)
	inputtest.Plan(t, p, m, inputtest.Prompts(0, shards*items))
	return &fixture{Ports: p, t: t, stores: s}
}

// offer sends a work message for each shard.
func (d *fixture) offer(shards ...int) {
	d.t.Helper()
	for _, n := range shards {
		d.send(host.WorkQueue("default"), events.Work{Run: string(run), Shard: n, Row: n, Pool: "default"})
	}
}

func (d *fixture) send(q string, p events.Payload) {
	d.t.Helper()
	if err := d.Send(d.t.Context(), q, p); err != nil {
		d.t.Fatal(err)
	}
}

// heard is what coordinate was sent since it was asked last.
func (d *fixture) heard() []events.Payload {
	d.t.Helper()
	ms, err := d.stores.queues.Receive(d.t.Context(), host.CoordinateQueue, 1000, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []events.Payload
	for _, m := range ms {
		_, p, err := events.Decode(m.Body)
		if err != nil {
			d.t.Fatal(err)
		}
		out = append(out, p)
		d.stores.queues.Ack(d.t.Context(), host.CoordinateQueue, []string{m.Receipt})
	}
	return out
}

// waiting is how many messages the queue has, hidden ones too.
func (d *fixture) waiting(q string) int {
	visible, hidden, err := d.stores.queues.Depth(d.t.Context(), q)
	if err != nil {
		d.t.Fatal(err)
	}
	return visible + hidden
}

func (d *fixture) shard(n int) shard.Doc {
	doc := shard.New(run, n)
	if _, _, err := host.Load(d.t.Context(), d.stores.docs, identity.ShardKey(run, n), &doc); err != nil {
		d.t.Fatal(err)
	}
	return doc
}

func (d *fixture) beat(id string) health.Heartbeat {
	return inputtest.Load[health.Heartbeat](d.t, d.Ports, record.HeartbeatKey(id))
}

// want lets the run's control document say what it shall do.
func (d *fixture) want(sequence uint64, what record.Desired, reason string) {
	inputtest.Save(d.t, d.Ports, record.ControlKey(run), record.Control{Schema: record.Schema, Sequence: sequence, Desired: what, Reason: reason})
}

// worker is a worker at work.
type running struct {
	*worker.Worker
	kill context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

// start runs a worker until the test ends.
func (d *fixture) start(id string, e *engine, edit ...func(*worker.Config)) *running {
	cfg := worker.Config{ID: id, Pool: "default", Timings: host.Timings(config.DefaultDeployment().Health), InFlight: 2,
		CheckpointInterval: time.Minute, Drain: 8 * time.Second, Grace: 3 * time.Second}
	for _, f := range edit {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	r := &running{Worker: worker.New(d.Ports, cfg, input.NewIndex(d.Blobs, d.Docs), e), kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// over reports whether the worker has ended.
func (r *running) over() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// engine is an executor that answers each item with its number, and records
// what it is asked.
type engine struct {
	// answer decides on an item; nil answers all at once. An error leaves the
	// item without a row.
	answer func(ctx context.Context, item int) error
	// fail is what Run returns once its items are over; nil is no error.
	fail  func() error
	ready func() error

	mu             sync.Mutex
	asked          []int // items of the run, in the order of their requests
	inFlight, most int
}

func (e *engine) Ready(context.Context) error {
	if e.ready == nil {
		return nil
	}
	return e.ready()
}

func (e *engine) Run(ctx context.Context, s *worker.Shard) error {
	var all sync.WaitGroup
	for i := range s.PendingItems(ctx, nil) {
		place, ok := s.Slot(ctx)
		if !ok {
			break
		}
		e.begin(e.number(s, i))
		all.Go(func() {
			defer place.Release()
			e.ask(ctx, s, i)
		})
	}
	all.Wait()
	for t := range s.ProbationRequests(ctx) {
		if t.Poison {
			s.Put(t.Items[0], []byte("poison\n"), fault.Poison, worker.Tokens{})
			continue
		}
		for _, i := range t.Items {
			e.begin(e.number(s, i))
			all.Go(func() { e.ask(ctx, s, i) })
		}
		all.Wait()
	}
	if e.fail == nil {
		return nil
	}
	return e.fail()
}

// number is the item's in the run.
func (e *engine) number(s *worker.Shard, i int) int { return int(s.Lines[i].Place.Item) }

// dies is the error of a request that an engine died with.
type dies struct{ shard.Crash }

func (dies) Error() string { return "the engine died" }

func (e *engine) ask(ctx context.Context, s *worker.Shard, i int) {
	n, begun := e.number(s, i), time.Now()
	err := e.end(ctx, n)
	s.Asked(time.Since(begun), err)
	var death dies
	switch {
	case errors.As(err, &death):
		s.RecordCrash(i, death.Crash)
	case err == nil:
		s.Put(i, fmt.Appendf(nil, "%d\n", n), "", worker.Tokens{Completion: 1})
	}
}

func (e *engine) begin(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, n)
	e.inFlight++
	e.most = max(e.most, e.inFlight)
}

func (e *engine) end(ctx context.Context, n int) error {
	var err error
	if e.answer != nil {
		err = e.answer(ctx, n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	return err
}

// questions are the items asked so far.
func (e *engine) questions() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// takes lets an answer take its time; Canceled if ctx is quicker.
func takes(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
	}
}

// pass lets time pass, and what is due by then happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// stuck is an answer that never comes.
func stuck(ctx context.Context, _ int) error { return takes(ctx, 1000*time.Hour) }

// call is one call of a store.
type call struct {
	at   time.Time
	what string // "get", "put", "read", "write", "wrote" (on the way back) or "send"
	key  string
}

// stores are the stores in memory. fail is asked before each call.
type stores struct {
	bucket *memory.Bucket
	docs   *memory.Documents
	queues *memory.Queues

	mu    sync.Mutex
	fails func(call) error
	calls []call
}

// failing lets calls fail from now on as f says; nil lets none.
func (s *stores) failing(f func(call) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = f
}

// log is what was called so far.
func (s *stores) log() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *stores) call(what, key string) error {
	c := call{time.Now(), what, key}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	f := s.fails
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(c)
}

type blobs struct {
	*memory.Bucket
	s *stores
}

func (b blobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := b.s.call("put", key); err != nil {
		return blob.Info{}, err
	}
	return b.Bucket.Put(ctx, key, r, o)
}

func (b blobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := b.s.call("get", key); err != nil {
		return nil, blob.Info{}, err
	}
	return b.Bucket.Get(ctx, key, o)
}

type docs struct {
	*memory.Documents
	s *stores
}

func (d docs) Get(ctx context.Context, key string) (document.Doc, error) {
	if err := d.s.call("read", key); err != nil {
		return document.Doc{}, err
	}
	return d.Documents.Get(ctx, key)
}

func (d docs) Create(ctx context.Context, key string, v []byte) (document.Revision, error) {
	if err := d.s.call("write", key); err != nil {
		return "", err
	}
	return d.Documents.Create(ctx, key, v)
}

func (d docs) Replace(ctx context.Context, key string, v []byte, rev document.Revision) (document.Revision, error) {
	if err := d.s.call("write", key); err != nil {
		return "", err
	}
	rev, err := d.Documents.Replace(ctx, key, v, rev)
	if err == nil {
		err = d.s.call("wrote", key)
	}
	return rev, err
}

type queues struct {
	*memory.Queues
	s *stores
}

func (q queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := q.s.call("send", name); err != nil {
		return err
	}
	return q.Queues.Send(ctx, name, bodies, delay)
}

var _ queue.Queues = queues{}
