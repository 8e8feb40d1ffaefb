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
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const run = inputtest.RunID

// fixture has in-memory stores with one planned run. A worker sees them through
// wrappers that can be made to fail.
type fixture struct {
	host.Ports
	t      *testing.T
	stores *stores
}

// newFixture plans a run of shards with so many prompts each, numbered from 0. Edits
// change its config.
func newFixture(t *testing.T, shards, items int, edit ...func(*config.Run)) *fixture {
	t.Helper()
	s := &stores{docs: memory.NewDocuments(), bucket: memory.NewBucket(clock.System{}),
		queues: memory.NewQueues(clock.System{})}
	p := host.Ports{Blobs: blobs{s.bucket, s}, Docs: docs{s.docs, s}, Queues: queues{s.queues, s},
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "test"}
	m := inputtest.Manifest(items)
	m.Config.Limits.Grace = config.Duration(3 * time.Second)
	for _, f := range edit {
		f(&m.Config)
	}
	inputtest.Plan(t, p, m, inputtest.Prompts(0, shards*items))
	return &fixture{Ports: p, t: t, stores: s}
}

// sendWork sends a work message for each of the shards.
func (d *fixture) sendWork(shards ...int) {
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

// coordinateEvents returns the events sent to coordinate since the last call.
func (d *fixture) coordinateEvents() []events.Payload {
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

// queued returns how many messages the queue has, including hidden ones.
func (d *fixture) queued(q string) int {
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

func (d *fixture) heartbeat(id string) health.Heartbeat {
	return hosttest.Load[health.Heartbeat](d.t, d.Ports, record.HeartbeatKey(id))
}

// setControl writes the run's control document.
func (d *fixture) setControl(sequence uint64, what record.Desired, reason string) {
	hosttest.Save(d.t, d.Ports, record.ControlKey(run),
		record.Control{Schema: record.Schema, Sequence: sequence, Desired: what, Reason: reason})
}

// runningWorker is a worker whose Run is under way.
type runningWorker struct {
	*worker.Worker
	kill context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

// start runs a worker until the test ends.
func (d *fixture) start(id string, e *fakeExecutor, edit ...func(*worker.Config)) *runningWorker {
	return d.startWith(id, e, edit...)
}

func (d *fixture) startWith(id string, e worker.Executor, edit ...func(*worker.Config)) *runningWorker {
	cfg := worker.Config{ID: id, Pool: "default", InFlight: 2,
		Timings:            host.Timings(config.DefaultDeployment().Health),
		CheckpointInterval: time.Minute, Drain: 8 * time.Second, Grace: 3 * time.Second}
	for _, f := range edit {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	w := worker.New(d.Ports, cfg, input.NewIndex(d.Blobs, d.Docs), e)
	r := &runningWorker{Worker: w, kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// ended reports whether Run has returned, after everything due has happened.
func (r *runningWorker) ended() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// fakeExecutor answers each item with its number and records the items that it
// asks.
type fakeExecutor struct {
	// answer decides how an item's request ends; nil answers at once. An error
	// leaves the item without a row.
	answer func(ctx context.Context, item int) error
	// fail, if not nil, gives the error that Run returns in the end.
	fail  func() error
	ready func() error
	// onShard, if not nil, is called with each shard before its items.
	onShard func(*worker.Shard)
	// says, if not nil, is what the answer to an item says of the server's limits.
	says func() ratelimit.Report

	mu             sync.Mutex
	asked          []int // items, numbered in the run, in the order of their requests
	inFlight, most int
}

func (e *fakeExecutor) Ready(context.Context) error {
	if e.ready == nil {
		return nil
	}
	return e.ready()
}

func (e *fakeExecutor) Run(ctx context.Context, s *worker.Shard) error {
	if e.onShard != nil {
		e.onShard(s)
	}
	var all sync.WaitGroup
	for i := range s.PendingItems(ctx, nil) {
		place, permit, ok := s.AcquireSlot(ctx, worker.Cost{})
		if !ok {
			break
		}
		e.begin(e.number(s, i))
		all.Go(func() {
			defer place.Release()
			e.ask(ctx, s, i)
			if e.says != nil {
				permit.Report(e.says())
			}
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

// number is the item's number in the run.
func (e *fakeExecutor) number(s *worker.Shard, i int) int { return int(s.Lines[i].Place.Item) }

// crashError is the error of a request during which the engine crashed.
type crashError struct{ shard.Crash }

func (crashError) Error() string { return "the engine crashed" }

func (e *fakeExecutor) ask(ctx context.Context, s *worker.Shard, i int) {
	n, begun := e.number(s, i), time.Now()
	err := e.end(ctx, n)
	s.RecordRequest(time.Since(begun), err)
	var crash crashError
	switch {
	case errors.As(err, &crash):
		s.RecordCrash(i, crash.Crash)
	case err == nil:
		s.Put(i, fmt.Appendf(nil, "%d\n", n), "", worker.Tokens{Completion: 1})
	}
}

func (e *fakeExecutor) begin(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, n)
	e.inFlight++
	e.most = max(e.most, e.inFlight)
}

func (e *fakeExecutor) end(ctx context.Context, n int) error {
	var err error
	if e.answer != nil {
		err = e.answer(ctx, n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	return err
}

// askedItems returns the items asked so far.
func (e *fakeExecutor) askedItems() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// answerAfter answers after d, or fails with Canceled when ctx ends.
func answerAfter(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
	}
}

// advance lets d pass and waits until everything due has happened.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// neverAnswer is an answer that never comes.
func neverAnswer(ctx context.Context, _ int) error { return answerAfter(ctx, 1000*time.Hour) }

// call is one call of a store.
type call struct {
	at   time.Time
	what string // "get", "put", "read", "write", "wrote" (after a write) or "send"
	key  string
}

// stores holds the in-memory stores, and records and fails calls to them.
type stores struct {
	bucket *memory.Bucket
	docs   *memory.Documents
	queues *memory.Queues

	mu    sync.Mutex
	fails func(call) error // called before each call; nil: no call fails
	calls []call
}

// failWith makes calls fail from now on with f's error. Nil ends that.
func (s *stores) failWith(f func(call) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = f
}

// recordedCalls returns the calls so far.
func (s *stores) recordedCalls() []call {
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
