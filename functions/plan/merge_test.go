package plan_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// repetitive returns n files of a few lines whose ids and prompts repeat, also
// across files.
func repetitive(n int) []file {
	dice := rand.New(rand.NewPCG(uint64(n), 7))
	files := make([]file, n)
	for k := range files {
		for range 1 + dice.IntN(6) {
			files[k].text += fmt.Sprintf(`{"id":"%d","prompt":"%d"}`+"\n", dice.IntN(3*n), dice.IntN(2*n))
		}
	}
	return files
}

// deduped returns a fixture whose run asks identical requests once.
func deduped(t *testing.T, files ...file) *fixture {
	t.Helper()
	d := newFixture(t, 0, files...)
	d.m.Config.Dedupe = config.Dedupe{Enabled: true, Sampled: true}
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	return d
}

// asked starts the plan and returns the ranges that are asked for.
func (d *fixture) asked() (out []events.PlanRange) {
	d.t.Helper()
	if err := d.Submitted(d.t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		d.t.Fatal(err)
	}
	for _, e := range d.received(host.PlanQueue) {
		out = append(out, e.(events.PlanRange))
	}
	return out
}

// index returns the run's index entries and lines as text. It does not depend on
// which ranges were merged together.
func (d *fixture) index() string {
	d.t.Helper()
	var all strings.Builder
	for k := range d.plan().Merged {
		e := hosttest.Object(d.t, d.Ports, record.IndexKey(id, k))
		fmt.Fprintln(&all, e)
	}
	return all.String() + strings.Join(d.lines(), "\n")
}

func TestRangesMergedTogetherGiveTheSameIndex(t *testing.T) {
	t.Parallel()
	const ranges = 64
	files := repetitive(ranges)
	alone := deduped(t, files...)
	for _, e := range alone.asked() {
		if err := alone.CutRange(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	together := deduped(t, files...)
	together.submitted() // the first range is cut last
	if a, b := alone.index(), together.index(); a != b {
		t.Errorf("one by one the index is\n%s\ntogether it is\n%s", a, b)
	}
	a, b := len(alone.received(host.CoordinateQueue)), len(together.received(host.CoordinateQueue))
	if a != ranges || b != 7 {
		t.Errorf("the plan advanced %d times one by one, and %d times together; want %d, and 7: by 1, 1, 2, 4, …",
			a, b, ranges)
	}
}

// Every write of a plan fails once, before or after it takes effect. Then the plan
// is resumed, with more ranges waiting.
func TestMergeContinuesAfterAFailureAtAnyWrite(t *testing.T) {
	t.Parallel()
	files := repetitive(12)
	undisturbed := deduped(t, files...)
	undisturbed.submitted()
	want := undisturbed.index()
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			d := deduped(t, files...)
			whole := d.Ports
			asked := d.asked()
			failing := &failAt{left: n, after: after}
			d.Ports.Blobs, d.Ports.Docs = failingBlobs{whole.Blobs, failing}, failingDocs{whole.Docs, failing}
			d.Ports.Queues = failingQueues{whole.Queues, failing}
			d.Planner = plan.New(d.Ports, plan.Options{})
			for _, k := range []int{1, 2, 3, 0, 4, 5, 9, 8, 7, 6} {
				if err := d.CutRange(t.Context(), asked[k]); err != nil && !fault.Is(err, fault.Unavailable) {
					t.Fatalf("write %d: %v", n, err)
				}
			}
			d.Ports = whole
			d.Planner = plan.New(d.Ports, plan.Options{})
			d.submitted()
			if got := d.index(); got != want {
				t.Fatalf("when write %d fails the index becomes\n%s\nwant\n%s", n, got, want)
			}
			if failing.left >= 0 { // all writes have failed once
				if n < 50 {
					t.Errorf("there are only %d writes", n)
				}
				break
			}
		}
	}
}

// failAt fails one write: the one that finds left at 0.
type failAt struct {
	mu    sync.Mutex // a call may write concurrently
	left  int
	after bool // the write takes effect nevertheless
}

func (f *failAt) write(do func() error) error {
	f.mu.Lock()
	f.left--
	fails := f.left == -1
	f.mu.Unlock()
	if !fails {
		return do()
	}
	if f.after {
		_ = do()
	}
	return fault.New(fault.Unavailable, "the store failed")
}

type failingBlobs struct {
	blob.Store
	*failAt
}

func (f failingBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (info blob.Info, err error) {
	err = f.write(func() error { info, err = f.Store.Put(ctx, key, r, o); return err })
	return info, err
}

type failingDocs struct {
	document.Store
	*failAt
}

func (f failingDocs) Replace(ctx context.Context, key string, value []byte,
	old document.Revision) (rev document.Revision, err error) {
	err = f.write(func() error { rev, err = f.Store.Replace(ctx, key, value, old); return err })
	return rev, err
}

type failingQueues struct {
	queue.Queues
	*failAt
}

func (f failingQueues) Send(ctx context.Context, q string, bodies [][]byte, delay time.Duration) error {
	return f.write(func() error { return f.Queues.Send(ctx, q, bodies, delay) })
}

// The third and the fourth range together have more repeats than fit in memory.
func TestRangesWithTooManyRepeatsAreMergedSeparately(t *testing.T) {
	t.Parallel()
	const n = 300_000
	repeating := file{text: strings.Repeat(`{"id":1}`+"\n", n)}
	d := newFixture(t, 1<<15, file{text: `{"id":1}` + "\n"}, file{text: `{"id":2}` + "\n"}, repeating, repeating,
		file{text: `{"id":2}` + "\n"})
	d.submitted()
	items := 0
	d.each(func(l input.Line) {
		first := ""
		if l.Duplicate != nil {
			first = l.Duplicate.File
		}
		if want := map[bool]string{true: "prompts/0.jsonl"}[items > 1 && items < 2*n+2]; first != want && items < 2*n+2 {
			t.Errorf("item %d repeats a line of %q", items, first)
		}
		items++
	})
	p, steps := d.plan(), len(d.received(host.CoordinateQueue))
	if items != 2*n+3 || !p.Complete() || steps != 4 {
		t.Errorf("%d items, in %d steps; the plan is %+v", items, steps, p)
	}
}

// The bucket refuses to create an existing object without reading from the
// writer, as a folder does.
func TestRepeatedCutFindsItsObjects(t *testing.T) {
	t.Parallel()
	const n = 6000 // more than the buffer of an object's writer holds
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"id\":%d}\n", i/2)
	}
	d := newFixture(t, 0, file{text: lines.String()})
	d.Ports.Blobs = refusingBlobs{d.Ports.Blobs}
	d.Planner = plan.New(d.Ports, plan.Options{})
	asked := d.asked()
	begun := d.plan()
	for range 2 {
		hosttest.Save(t, d.Ports, record.PlanKey(id), begun)
		if err := d.CutRange(t.Context(), asked[0]); err != nil {
			t.Fatal(err)
		}
		if p := d.plan(); p.Items != n || p.IDs[0].Count != n/2 {
			t.Errorf("the plan is %+v", p)
		}
	}
}

type refusingBlobs struct{ blob.Store }

func (r refusingBlobs) Put(ctx context.Context, key string, body io.Reader, o blob.PutOptions) (blob.Info, error) {
	if _, err := r.Stat(ctx, key, ""); err == nil && o.CreateOnly {
		return blob.Info{}, fault.New(fault.Conflict, "the object exists")
	}
	return r.Store.Put(ctx, key, body, o)
}
