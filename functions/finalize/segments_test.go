package finalize_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/blob"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
)

// tiny splits every run into many segments.
var tiny = finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1, MaxShards: 2}

func inSegments(p host.Ports, s finalize.SegmentOptions) *finalize.Finalizer {
	return finalize.New(p, input.NewIndex(p.Blobs, p.Docs), finalize.Options{Segments: &s})
}

// asks receives all events for finalize.
func asks(tb testing.TB, p host.Ports) (out []events.Payload) {
	tb.Helper()
	ms, err := p.Queues.Receive(tb.Context(), host.TaskQueue, 1000, time.Minute, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range ms {
		_, pl, err := events.Decode(m.Body)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, pl)
		_ = p.Queues.Ack(tb.Context(), host.TaskQueue, []string{m.Receipt})
	}
	return out
}

// do handles one event.
func do(ctx context.Context, f *finalize.Finalizer, pl events.Payload) error {
	switch pl := pl.(type) {
	case events.Finalize:
		return f.Finalize(ctx, pl)
	case events.FinalizeSegment:
		return f.WriteSegment(ctx, pl)
	}
	return fmt.Errorf("finalize is asked for %T", pl)
}

// handleAll asks for the run to be finalized, and handles events until none is left.
func handleAll(tb testing.TB, p host.Ports, f *finalize.Finalizer) {
	tb.Helper()
	for todo := []events.Payload{events.Finalize{Run: string(id)}}; len(todo) > 0; todo = asks(tb, p) {
		for _, pl := range todo {
			if err := do(tb.Context(), f, pl); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// written returns the run's files and its summary without times, as text.
func (d fixture) written() string {
	d.t.Helper()
	var s record.Summary
	if err := input.ReadJSON(d.t.Context(), d.Blobs, record.OutputKey(id, record.SummaryFile), &s); err != nil {
		d.t.Fatal(err)
	}
	s.EndedAt, s.Seconds = time.Time{}, 0
	return d.file(record.CompletionsFile) + "\n" + d.file(record.ErrorsFile) + "\n" + string(record.Encode(s))
}

// inOneStream returns written for a run whose files were written in one stream.
func inOneStream(t *testing.T) string {
	t.Helper()
	d := newFixture(t)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	return d.written()
}

func TestSegmentsGiveTheBytesOfOneStream(t *testing.T) {
	t.Parallel()
	want := inOneStream(t)
	for _, s := range []finalize.SegmentOptions{
		tiny, {StreamBelow: 1, MinBytes: 1 << 20, MaxShards: 1}, {StreamBelow: 1, MaxShards: 4},
		{StreamBelow: 1}, {StreamBelow: 1 << 30}, {MaxShards: 5},
	} {
		d := newFixture(t)
		handleAll(t, d.Ports, inSegments(d.Ports, s))
		if got := d.written(); got != want {
			t.Errorf("%+v: the files are\n%s\nwant\n%s", s, got, want)
		}
	}
}

// Events are handled in any order, several times at once, or lost until Finalize
// is asked for again. Some ask for segments that Finalize would not cut.
func TestSegmentsGiveTheSameBytesWhenEventsAreReorderedRepeatedAndLost(t *testing.T) {
	t.Parallel()
	want := inOneStream(t)
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 1))
		d := newFixture(t)
		ended := func() bool {
			_, err := d.Blobs.Stat(t.Context(), record.OutputKey(id, record.SummaryFile), "")
			return err == nil
		}
		for !ended() {
			f := inSegments(d.Ports, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1 + dice.Int64N(12),
				MaxShards: 1 + dice.IntN(4), MaxRequests: 1 + dice.IntN(4)})
			todo := append(asks(t, d.Ports), events.Finalize{Run: string(id)})
			from := dice.IntN(6)
			todo = append(todo, events.FinalizeSegment{Run: string(id), From: from, To: from + 1 + dice.IntN(6-from)})
			var all sync.WaitGroup
			for _, pl := range todo {
				for range dice.IntN(4) {
					all.Go(func() {
						if err := do(t.Context(), f, pl); err != nil {
							t.Error(err)
						}
					})
				}
			}
			all.Wait()
		}
		if got := d.written(); got != want {
			t.Fatalf("seed %d: the files are\n%s\nwant\n%s", seed, got, want)
		}
	}
}

func TestSegmentsCopyOriginalsOfOtherSegments(t *testing.T) {
	t.Parallel()
	const n = 200
	dice := rand.New(rand.NewPCG(1, 2))
	originals := make([]int, n)
	for i := range originals {
		if originals[i] = i; i > 0 && dice.IntN(2) == 0 {
			originals[i] = originals[dice.IntN(i)]
		}
	}
	outcomes := [2][]string{}
	for k := range outcomes {
		a := newDedupeRun(t, 3, originals)
		for s := range a.shards() {
			a.commit(t, s, func(i int) bool { return i%10 == 3 })
		}
		if k == 0 {
			a.finalize(t, run.ReasonDone, a.shards())
		} else {
			hosttest.Save(t, a.Ports, record.CoordinatorKey(id), a.state(run.ReasonDone, a.shards()))
			handleAll(t, a.Ports, inSegments(a.Ports, finalize.SegmentOptions{StreamBelow: 1, MaxShards: 32}))
		}
		outcomes[k] = a.outcome(t)
	}
	if !slices.Equal(outcomes[0], outcomes[1]) {
		t.Errorf("in one stream\n%q\nin segments\n%q", outcomes[0], outcomes[1])
	}
}

func TestMaxRequestsBoundsTheSegmentsAskedFor(t *testing.T) {
	t.Parallel()
	for most, want := range map[int][][2]int{
		6: {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}, 5: {{0, 2}, {2, 4}, {4, 6}}, 2: {{0, 4}, {4, 6}}, 1: {{0, 6}},
	} {
		d := newFixture(t)
		f := inSegments(d.Ports, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1, MaxRequests: most})
		if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		var got [][2]int
		for _, pl := range asks(t, d.Ports) {
			s := pl.(events.FinalizeSegment)
			got = append(got, [2]int{s.From, s.To})
		}
		slices.SortFunc(got, func(a, b [2]int) int { return a[0] - b[0] })
		if !slices.Equal(got, want) {
			t.Errorf("at most %d: asked for %v, want %v", most, got, want)
		}
	}
}

// slowBlobs is a bucket that delays every read.
type slowBlobs struct {
	blob.Store
	delay time.Duration
}

func (s slowBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	select {
	case <-time.After(s.delay):
	case <-ctx.Done():
		return nil, blob.Info{}, fault.WithKind(fault.Canceled, ctx.Err(), "get %s", key)
	}
	return s.Store.Get(ctx, key, o)
}

// Each call has time for a few shards only. Every call makes progress, and writes
// whole segments only.
func TestCallOutOfTimeEndsItsSegmentEarly(t *testing.T) {
	t.Parallel()
	want := inOneStream(t)
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		fast := d.Blobs
		d.Blobs = slowBlobs{fast, time.Second}
		calls := 0
		for {
			if calls++; calls > 50 {
				t.Fatal("the run is not finalized after 50 rounds")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			f := inSegments(d.Ports, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1 << 20})
			if err := f.Finalize(ctx, events.Finalize{Run: string(id)}); err != nil {
				t.Fatal(err)
			}
			cancel()
			todo := asks(t, d.Ports)
			if len(todo) == 0 {
				break
			}
			for _, pl := range todo {
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				if err := do(ctx, f, pl); err != nil {
					t.Fatal(err)
				}
				cancel()
			}
		}
		d.Blobs = fast
		if got := d.written(); got != want {
			t.Errorf("the files are\n%s\nwant\n%s", got, want)
		}
		infos, err := d.Blobs.List(t.Context(), record.OutputSegmentDir(id)+"segments/", "", 100)
		if err != nil || len(infos) < 2 {
			t.Errorf("%d segments, %v: no call ended early", len(infos), err)
		}
	})
}

func TestCanceledCallLeavesNoSegment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.Blobs = slowBlobs{d.Blobs, time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := inSegments(d.Ports, tiny).WriteSegment(ctx, events.FinalizeSegment{Run: string(id), To: 6}); err == nil {
			t.Error("the call succeeded")
		}
		infos, err := d.Blobs.List(t.Context(), record.OutputSegmentDir(id), "", 100)
		if err != nil || len(infos) != 0 {
			t.Errorf("objects %v, %v", infos, err)
		}
	})
}

func TestSegmentBeyondTheLastShardIsInvalid(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	e := events.FinalizeSegment{Run: string(id), From: 5, To: 7}
	if err := inSegments(d.Ports, tiny).WriteSegment(t.Context(), e); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestSegmentRecordThatDoesNotFitItsKeyIsCorrupt(t *testing.T) {
	t.Parallel()
	for _, c := range []string{
		`{"schema":1,"from":2,"to":3}`, `{"schema":1,"from":0,"to":0}`, `{"schema":1,"from":0,"to":7}`, `{"schema":1`,
	} {
		d := newFixture(t)
		hosttest.Put(t, d.Ports, record.OutputSegmentKey(id, 0), c)
		err := inSegments(d.Ports, tiny).Finalize(t.Context(), events.Finalize{Run: string(id)})
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", c, err)
		}
	}
	d := newFixture(t)
	hosttest.Put(t, d.Ports, record.OutputSegmentDir(id)+"segments/0000000000.txt", "")
	err := inSegments(d.Ports, tiny).Finalize(t.Context(), events.Finalize{Run: string(id)})
	if !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v", err)
	}
}

// countedBlobs and countedDocs count the requests to the stores.
type countedBlobs struct {
	blob.Store
	n *atomic.Int64
}

func (c countedBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	c.n.Add(1)
	return c.Store.Get(ctx, key, o)
}

func (c countedBlobs) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	c.n.Add(1)
	return c.Store.Stat(ctx, key, version)
}

func (c countedBlobs) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	c.n.Add(1)
	return c.Store.List(ctx, prefix, after, limit)
}

func (c countedBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	c.n.Add(1)
	return c.Store.Put(ctx, key, r, o)
}

type countedDocs struct {
	document.Store
	n *atomic.Int64
}

func (c countedDocs) Get(ctx context.Context, key string) (document.Doc, error) {
	c.n.Add(1)
	return c.Store.Get(ctx, key)
}

func (c countedDocs) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	c.n.Add(1)
	return c.Store.GetMany(ctx, keys)
}

func TestSegmentsCostASmallRunNoRequests(t *testing.T) {
	t.Parallel()
	var requests [2]int64
	for k := range requests {
		d := newFixture(t)
		var n atomic.Int64
		d.Blobs, d.Docs = countedBlobs{d.Blobs, &n}, countedDocs{d.Docs, &n}
		f := d.finalizer()
		if k == 1 {
			f = inSegments(d.Ports, finalize.SegmentOptions{})
		}
		if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		requests[k] = n.Load()
	}
	if requests[0] != requests[1] || requests[0] == 0 {
		t.Errorf("%d requests in one stream, %d with Options.Segments", requests[0], requests[1])
	}
}

// Reads of the bucket are slow. Copies do not wait for their originals one after
// the other.
func TestOriginalsOfOtherSegmentsAreFetchedConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, perShard = 64, 16
		originals := make([]int, 2*n)
		for i := range n {
			originals[i], originals[n+i] = i, (i*7)%n
		}
		a := newDedupeRun(t, perShard, originals)
		for k := range a.shards() {
			a.commit(t, k, func(int) bool { return false })
		}
		hosttest.Save(t, a.Ports, record.CoordinatorKey(id), a.state(run.ReasonDone, a.shards()))
		a.Blobs = slowBlobs{a.Blobs, time.Second}
		began := time.Now()
		e := events.FinalizeSegment{Run: string(id), From: n / perShard, To: 2 * n / perShard}
		if err := inSegments(a.Ports, tiny).WriteSegment(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > n*time.Second/2 {
			t.Errorf("%d copies took %s, at a second a read", n, took)
		}
	})
}
