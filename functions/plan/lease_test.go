package plan_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// slowBlobs is a bucket that counts the puts of each key, and delays every read.
type slowBlobs struct {
	blob.Store
	delay time.Duration
	mu    *sync.Mutex
	puts  map[string]int
}

// slowDown replaces the fixture's bucket and planner.
func slowDown(d *fixture, delay time.Duration) slowBlobs {
	w := slowBlobs{d.Blobs, delay, &sync.Mutex{}, map[string]int{}}
	d.Blobs = w
	d.Planner = plan.New(d.Ports, plan.Options{})
	return w
}

func (w slowBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	w.mu.Lock()
	w.puts[key]++
	w.mu.Unlock()
	return w.Store.Put(ctx, key, r, o)
}

func (w slowBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := w.Store.Get(ctx, key, o)
	if err == nil {
		r = slowReader{r, ctx, w.delay}
	}
	return r, info, err
}

// slowReader delays every read.
type slowReader struct {
	io.ReadCloser
	ctx   context.Context
	delay time.Duration
}

func (f slowReader) Read(b []byte) (int, error) {
	select {
	case <-time.After(f.delay):
		return f.ReadCloser.Read(b[:min(len(b), 1000)])
	case <-f.ctx.Done():
		return 0, f.ctx.Err()
	}
}

// ids returns n files of three lines that all have the same id.
func ids(n int) []file {
	files := make([]file, n)
	for i := range files {
		files[i].text = strings.Repeat(`{"id":"x","prompt":"p"}`+"\n", 3)
	}
	return files
}

// All ranges of a run are cut concurrently, and each call takes some time: every
// range is merged exactly once.
func TestConcurrentCallsMergeEveryRangeOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			const ranges = 12
			d := newFixture(t, 2, ids(ranges)...)
			if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
				t.Fatal(err)
			}
			asked := d.received(host.PlanQueue)
			w := slowDown(d, 40*time.Millisecond)
			planner := func() *plan.Planner { return plan.New(d.Ports, plan.Options{Leases: true}) }
			if seed%2 == 1 { // all in one process
				planner = func() *plan.Planner { return d.Planner }
			}
			dice := rand.New(rand.NewPCG(seed, 1))
			var all sync.WaitGroup
			for _, e := range asked {
				for range 1 + dice.IntN(2) {
					wait := time.Duration(dice.Int64N(int64(time.Second)))
					all.Go(func() {
						time.Sleep(wait)
						if err := planner().CutRange(t.Context(), e.(events.PlanRange)); err != nil {
							t.Error(err)
						}
					})
				}
			}
			all.Wait()
			if p := d.plan(); !p.Complete() || p.Items != 3*ranges {
				t.Fatalf("seed %d: %d of %d ranges are merged, %d items", seed, p.Merged, p.Total, p.Items)
			}
			for k := range ranges {
				if n := w.puts[record.IndexKey(id, k)]; n != 1 {
					t.Errorf("seed %d: range %d is merged %d times", seed, k, n)
				}
			}
		})
	}
}

func TestLeaseOfACrashedCallExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, ids(2)...)
		if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		hosttest.Save(t, d.Ports, record.PlanLeaseKey(id),
			record.PlanLease{Schema: 1, Until: time.Now().Add(30 * time.Second)})
		p := plan.New(d.Ports, plan.Options{Leases: true})
		asked := d.received(host.PlanQueue)
		for _, e := range asked {
			if err := p.CutRange(t.Context(), e.(events.PlanRange)); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.plan(); got.Merged != 0 {
			t.Errorf("%d ranges are merged while another call holds the lease", got.Merged)
		}
		time.Sleep(31 * time.Second)
		if err := p.CutRange(t.Context(), asked[1].(events.PlanRange)); err != nil || !d.plan().Complete() {
			t.Errorf("%+v, %v", d.plan(), err)
		}
	})
}

// A call that has only time to merge a few ranges leaves the others to the next
// call.
func TestCallOutOfTimeLeavesRangesToTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ranges = 8
		d := newFixture(t, 2, ids(ranges)...)
		if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		asked := d.received(host.PlanQueue)
		for i := range asked { // the first range is cut last, and all are merged then
			e := asked[len(asked)-1-i].(events.PlanRange)
			if e.Range == 0 {
				slowDown(d, time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := plan.New(d.Ports, plan.Options{Leases: true}).CutRange(ctx, e); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		some := d.plan().Merged
		if some == 0 || some == ranges {
			t.Fatalf("%d of %d ranges are merged", some, ranges)
		}
		err := plan.New(d.Ports, plan.Options{Leases: true}).CutRange(t.Context(), asked[0].(events.PlanRange))
		if err != nil || !d.plan().Complete() {
			t.Errorf("%d of %d ranges are merged, %v", d.plan().Merged, ranges, err)
		}
	})
}

// An archive that a call can't unpack in its time is not tried again before a user
// resumes the run.
func TestArchiveThatTakesTooLongPausesItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		dice := rand.New(rand.NewPCG(1, 1))
		for range 5000 {
			lines.WriteString(`{"prompt":"`)
			for range 8 {
				lines.WriteByte('a' + byte(dice.IntN(26)))
			}
			lines.WriteString(`"}` + "\n")
		}
		d := newFixture(t, 2, file{text: lines.String(), packed: "gzip"})
		w := slowDown(d, 2*time.Second)
		p := plan.New(d.Ports, plan.Options{Leases: true})
		submitted := func(limit time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := p.Submitted(ctx, events.RunSubmitted{Run: string(id)}); err != nil {
				t.Fatal(err)
			}
		}
		submitted(40 * time.Second)
		got := d.plan()
		for _, want := range []string{"after 35s", "% of it was read", "upload the file unpacked"} {
			if got.ProblemKind != record.InputSlow || !strings.Contains(got.Problem, want) {
				t.Fatalf("%q: %s", got.ProblemKind, got.Problem)
			}
		}
		hosttest.Save(t, d.Ports, record.ControlKey(id),
			record.Control{Schema: 1, Sequence: 1, Desired: record.DesiredPause})
		submitted(time.Hour)
		if n := w.puts[record.UnpackedKey(id, 0)]; n != 1 {
			t.Errorf("it is unpacked %d times", n)
		}
		hosttest.Save(t, d.Ports, record.ControlKey(id), record.Control{Schema: 1, Sequence: 2, Desired: record.DesiredRun})
		submitted(time.Hour)
		if got := d.plan(); got.Problem != "" || got.Total != 1 {
			t.Errorf("resumed with more time, the plan is %+v", got)
		}
	})
}

// The second line of the file takes longer to read than a call may take.
func TestLineThatTakesTooLongPausesItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, file{text: `{"prompt":"a"}` + "\n[" + strings.Repeat(`{"prompt":"b"},`, 2000) + "]"})
		asked := d.asked()[0]
		slowDown(d, 2*time.Second)
		planned := func(limit time.Duration) record.Plan {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := plan.New(d.Ports, plan.Options{Leases: true}).CutRange(ctx, asked); err != nil {
				t.Fatal(err)
			}
			return d.plan()
		}
		got := planned(40 * time.Second)
		if got.ProblemKind != record.InputSlow || !strings.Contains(got.Problem, "prompts/0.jsonl can't be read") ||
			!strings.Contains(got.Problem, "after 35s, the line that begins at byte 15 was not over") {
			t.Fatalf("%q: %s", got.ProblemKind, got.Problem)
		}
		if got := planned(time.Hour); got.Items != 2 || !got.Complete() {
			t.Errorf("with more time, the plan is %+v", got)
		}
	})
}

// The run is announced repeatedly while its archive is being unpacked.
func TestArchiveIsUnpackedByOneCallAtATime(t *testing.T) {
	t.Parallel()
	for name, planner := range map[string]func(*fixture) func() *plan.Planner{
		"in one process": func(d *fixture) func() *plan.Planner {
			p := plan.New(d.Ports, plan.Options{})
			return func() *plan.Planner { return p }
		},
		"with leases": func(d *fixture) func() *plan.Planner {
			return func() *plan.Planner { return plan.New(d.Ports, plan.Options{Leases: true}) }
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t, 2, file{text: strings.Repeat(`{"prompt":"p"}`+"\n", 1000), packed: "gzip"})
			w := slowDown(d, 3*time.Minute)
			p := planner(d)
			var all sync.WaitGroup
			errs := make([]error, 5)
			for i := range errs {
				all.Go(func() { errs[i] = p().Submitted(t.Context(), events.RunSubmitted{Run: string(id)}) })
				time.Sleep(time.Minute)
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			if n := w.puts[record.UnpackedKey(id, 0)]; n != 1 || d.plan().Total != 1 {
				t.Errorf("%s: it is unpacked %d times; the plan is %+v", name, n, d.plan())
			}
		})
	}
}
