package finalize_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
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

// tiny makes every run one of many segments.
var tiny = finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1, MaxShards: 2}

func inSegments(p host.Ports, s finalize.SegmentOptions) *finalize.Finalizer {
	return finalize.New(p, input.NewIndex(p.Blobs, p.Docs), finalize.Options{Segments: &s})
}

// asks takes what was asked of finalize.
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

func do(ctx context.Context, f *finalize.Finalizer, pl events.Payload) error {
	switch pl := pl.(type) {
	case events.Finalize:
		return f.Finalize(ctx, pl)
	case events.FinalizeSegment:
		return f.WriteSegment(ctx, pl)
	}
	return fmt.Errorf("finalize is asked for %T", pl)
}

// handleAll does what is asked until nothing is.
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

// written are a run's files, and what its summary counts.
func (d fixture) written() string {
	d.t.Helper()
	var s record.Summary
	if err := input.ReadJSON(d.t.Context(), d.Blobs, record.OutputKey(id, record.SummaryFile), &s); err != nil {
		d.t.Fatal(err)
	}
	s.EndedAt, s.Seconds = time.Time{}, 0
	return d.file(record.CompletionsFile) + "\n" + d.file(record.ErrorsFile) + "\n" + string(record.Encode(s))
}

// inOneStream is what a run's files must be, however they are written.
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
	for _, s := range []finalize.SegmentOptions{tiny, {StreamBelow: 1, MinBytes: 1 << 20, MaxShards: 1}, {StreamBelow: 1, MaxShards: 4}, {StreamBelow: 1}, {StreamBelow: 1 << 30}, {MaxShards: 5}} {
		d := newFixture(t)
		handleAll(t, d.Ports, inSegments(d.Ports, s))
		if got := d.written(); got != want {
			t.Errorf("%+v: the files are\n%s\nwant\n%s", s, got, want)
		}
	}
}

// TestSegmentsInAnyOrderTwiceAndLost has everything asked for happen in any
// order, several times at once, or not at all until finalize is asked again;
// and segments that nobody cuts.
func TestSegmentsInAnyOrderTwiceAndLost(t *testing.T) {
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
			f := inSegments(d.Ports, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1 + dice.Int64N(12), MaxShards: 1 + dice.IntN(4), MaxRequests: 1 + dice.IntN(4)})
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

func TestCopiesOfOriginalsInOtherSegments(t *testing.T) {
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
		a := newAsked(t, 3, originals)
		for s := range a.shards() {
			a.commit(t, s, func(i int) bool { return i%10 == 3 })
		}
		if k == 0 {
			a.finalize(t, run.ReasonDone, a.shards())
		} else {
			s := run.New(id)
			s.Phase, s.Reason, s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier = run.Finalizing, run.ReasonDone, a.shards(), n, true, a.shards(), a.shards()
			hosttest.Save(t, a.Ports, record.CoordinatorKey(id), s)
			handleAll(t, a.Ports, inSegments(a.Ports, finalize.SegmentOptions{StreamBelow: 1, MaxShards: 32}))
		}
		outcomes[k] = a.outcome(t)
	}
	if !slices.Equal(outcomes[0], outcomes[1]) {
		t.Errorf("in one stream\n%q\nin segments\n%q", outcomes[0], outcomes[1])
	}
}

func TestNoMoreSegmentsAreAskedForAtOnceThanMayBe(t *testing.T) {
	t.Parallel()
	for most, want := range map[int][][2]int{6: {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}, 5: {{0, 2}, {2, 4}, {4, 6}}, 2: {{0, 4}, {4, 6}}, 1: {{0, 6}}} {
		d := newFixture(t)
		if err := inSegments(d.Ports, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1, MaxRequests: most}).Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
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

// away is a bucket far away: every read takes a while.
type away struct {
	blob.Store
	takes time.Duration
}

func (s away) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, blob.Info{}, fault.WithKind(fault.Canceled, ctx.Err(), "get %s", key)
	}
	return s.Store.Get(ctx, key, o)
}

// TestACallWithoutTimeEndsItsSegmentEarly has calls that have time for a few
// shards only: each gets further, and none leaves half a segment.
func TestACallWithoutTimeEndsItsSegmentEarly(t *testing.T) {
	t.Parallel()
	want := inOneStream(t)
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		fast := d.Blobs
		d.Blobs = away{fast, time.Second}
		calls := 0
		for {
			if calls++; calls > 50 {
				t.Fatal("the run does not come to its end")
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

func TestACallThatIsCutOffLeavesNoSegment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.Blobs = away{d.Blobs, time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := inSegments(d.Ports, tiny).WriteSegment(ctx, events.FinalizeSegment{Run: string(id), To: 6}); err == nil {
			t.Error("it ended well")
		}
		if infos, err := d.Blobs.List(t.Context(), record.OutputSegmentDir(id), "", 100); err != nil || len(infos) != 0 {
			t.Errorf("it left %v, %v", infos, err)
		}
	})
}

func TestASegmentOfNoSuchShardsIsInvalid(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	if err := inSegments(d.Ports, tiny).WriteSegment(t.Context(), events.FinalizeSegment{Run: string(id), From: 5, To: 7}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestARecordThatIsNotOfItsSegmentIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []string{`{"schema":1,"from":2,"to":3}`, `{"schema":1,"from":0,"to":0}`, `{"schema":1,"from":0,"to":7}`, `{"schema":1`} {
		d := newFixture(t)
		hosttest.Put(t, d.Ports, record.OutputSegmentKey(id, 0), c)
		if err := inSegments(d.Ports, tiny).Finalize(t.Context(), events.Finalize{Run: string(id)}); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", c, err)
		}
	}
	d := newFixture(t)
	hosttest.Put(t, d.Ports, record.OutputSegmentDir(id)+"segments/0000000000.txt", "")
	if err := inSegments(d.Ports, tiny).Finalize(t.Context(), events.Finalize{Run: string(id)}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v", err)
	}
}

// counted counts the requests to the stores.
type counted struct {
	blob.Store
	n *atomic.Int64
}

func (c counted) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	c.n.Add(1)
	return c.Store.Get(ctx, key, o)
}

func (c counted) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	c.n.Add(1)
	return c.Store.Stat(ctx, key, version)
}

func (c counted) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	c.n.Add(1)
	return c.Store.List(ctx, prefix, after, limit)
}

func (c counted) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
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

func TestASmallRunCostsNoRequestMore(t *testing.T) {
	t.Parallel()
	var requests [2]int64
	for k := range requests {
		d := newFixture(t)
		var n atomic.Int64
		d.Blobs, d.Docs = counted{d.Blobs, &n}, countedDocs{d.Docs, &n}
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
		t.Errorf("%d requests in one stream, %d if it could be in segments", requests[0], requests[1])
	}
}

func TestAResultThatIsNotTheCommittedOneIsInNoSegment(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	key := record.ShardObjectKey(id, 0, 1, "result")
	hosttest.Put(t, d.Ports, key, strings.Replace(hosttest.Object(t, d.Ports, key), "a", "b", 1))
	err := inSegments(d.Ports, tiny).WriteSegment(t.Context(), events.FinalizeSegment{Run: string(id), To: 1})
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("%v", err)
	}
	if _, err := d.Blobs.Stat(t.Context(), record.OutputSegmentKey(id, 0), ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("a segment is there: %v", err)
	}
}

// TestOriginalsInOtherSegmentsAreFetchedAtOnce has a bucket far away: copies
// must not wait for their originals one after the other.
func TestOriginalsInOtherSegmentsAreFetchedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, perShard = 64, 16
		originals := make([]int, 2*n)
		for i := range n {
			originals[i], originals[n+i] = i, (i*7)%n
		}
		a := newAsked(t, perShard, originals)
		for k := range a.shards() {
			a.commit(t, k, func(int) bool { return false })
		}
		s := run.New(id)
		s.Phase, s.Reason, s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier = run.Finalizing, run.ReasonDone, a.shards(), 2*n, true, a.shards(), a.shards()
		hosttest.Save(t, a.Ports, record.CoordinatorKey(id), s)
		a.Blobs = away{a.Blobs, time.Second}
		began := time.Now()
		if err := inSegments(a.Ports, tiny).WriteSegment(t.Context(), events.FinalizeSegment{Run: string(id), From: n / perShard, To: 2 * n / perShard}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > n*time.Second/2 {
			t.Errorf("%d copies took %s, at a second a read", n, took)
		}
	})
}
