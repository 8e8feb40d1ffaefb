package plan_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// inParts lists the inputs of the fixture in parts of three.
func (d *fixture) inParts() *fixture {
	d.t.Helper()
	m, err := input.PutList(d.t.Context(), d.Ports.Blobs, d.m, inputtest.InParts(1, 3))
	if err != nil {
		d.t.Fatal(err)
	}
	d.m = m
	hosttest.Save(d.t, d.Ports, record.ManifestKey(id), d.m)
	return d
}

// manyFiles are files of each kind that planning treats in its own way.
func manyFiles() (out []file) {
	for i := range 11 {
		text := inputtest.Prompts(10*i, i%4)
		if i%3 == 1 {
			text += fmt.Sprintf("{\"id\":\"same\",\"prompt\":\"%d\"}\n\n", i)
		}
		packed := ""
		if i%5 == 2 {
			packed = input.Gzip
		}
		out = append(out, file{text, packed})
	}
	return append(out, file{}, file{}, file{}, file{}) // the last part has no range
}

// entries are the index entries of the plan.
func (d *fixture) entries() (out []string) {
	d.t.Helper()
	for k := range d.plan().Merged {
		out = append(out, hosttest.Object(d.t, d.Ports, record.IndexKey(id, k)),
			hosttest.Object(d.t, d.Ports, record.ShardTableKey(id, k)))
	}
	return out
}

// numbers are the plan without the lists of its inputs.
func numbers(p record.Plan) record.Plan {
	p.Ranges, p.List = nil, nil
	return p
}

func TestPlanInPartsIsThatOfOneList(t *testing.T) {
	t.Parallel()
	whole := newFixture(t, 2, manyFiles()...)
	whole.submitted()
	d := newFixture(t, 2, manyFiles()...).inParts()
	d.submitted()
	p := d.plan()
	if !p.Complete() || p.List == nil || len(p.List.Parts) != 5 || p.Sources() != 15 || len(p.Ranges) > 0 {
		t.Fatalf("the plan is %+v", p)
	}
	for what, diff := range map[string]string{
		"numbers": cmp.Diff(numbers(whole.plan()), numbers(p)),
		"entries": cmp.Diff(whole.entries(), d.entries()),
		"lines":   cmp.Diff(whole.lines(), d.lines()),
	} {
		if diff != "" {
			t.Errorf("the %s differ (-one list, +parts):\n%s", what, diff)
		}
	}
}

// TestPlanInPartsGoesOnAfterACrashAtAnyWrite ends a planner at each of its writes, and has
// another one go on.
func TestPlanInPartsGoesOnAfterACrashAtAnyWrite(t *testing.T) {
	t.Parallel()
	files := manyFiles()[:7]
	whole := newFixture(t, 2, files...).inParts()
	whole.submitted()
	for _, late := range []bool{false, true} {
		for write := 0; ; write++ {
			d := newFixture(t, 2, files...).inParts()
			ports := d.Ports
			d.Ports = hosttest.Crashing(ports, write, late)
			d.Planner = plan.New(d.Ports, plan.Options{})
			err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)})
			for _, r := range d.received(host.PlanQueue) {
				if err == nil {
					err = d.CutRange(t.Context(), r.(events.PlanRange))
				}
			}
			if err == nil {
				break
			}
			d.Ports, d.Planner = ports, plan.New(ports, plan.Options{})
			d.submitted()
			diff := cmp.Diff(numbers(whole.plan()), numbers(d.plan())) + cmp.Diff(whole.lines(), d.lines())
			if diff != "" {
				t.Errorf("after a crash at write %d (late: %v) the plan differs:\n%s", write, late, diff)
			}
		}
	}
}

// timedBlobs take 10 seconds for each input that they open to pin it.
type timedBlobs struct {
	blob.Store
	clock *movedClock
}

func (b timedBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if o.Length == 1 {
		b.clock.move(10 * time.Second)
	}
	return b.Store.Get(ctx, key, o)
}

// movedClock stands still until it is moved.
type movedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *movedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *movedClock) move(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

// A function's call may end before all files are pinned: the next one goes on.
func TestListOfSourcesGoesOnInTheNextCall(t *testing.T) {
	t.Parallel()
	var files []file
	for i := range 20 {
		files = append(files, file{text: inputtest.Prompts(i, 1)})
	}
	d := newFixture(t, 1, files...).inParts()
	clock := &movedClock{now: time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC)}
	d.Ports.Clock, d.Ports.Blobs = clock, timedBlobs{d.Ports.Blobs, clock}
	d.Planner = plan.New(d.Ports, plan.Options{Leases: true})
	calls := 0
	for d.plan().Total == 0 {
		if calls++; calls > 20 {
			t.Fatal("the plan never starts")
		}
		ctx, cancel := context.WithDeadline(t.Context(), clock.Now().Add(100*time.Second))
		if err := d.Submitted(ctx, events.RunSubmitted{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if again := len(d.received(host.TaskQueue)); d.plan().Total == 0 && again != 1 {
			t.Fatalf("call %d: the rest is asked for %d times", calls, again)
		}
	}
	if calls < 3 {
		t.Errorf("all inputs were pinned in %d calls", calls)
	}
	d.submitted()
	if p := d.plan(); !p.Complete() || p.Items != 20 {
		t.Errorf("the plan is %+v", p)
	}
}
