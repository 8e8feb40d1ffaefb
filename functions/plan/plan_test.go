package plan_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

const id = inputtest.RunID

// fixture is a planner over stores with one submitted run.
type fixture struct {
	host.Ports
	t *testing.T
	m record.Manifest
	*plan.Planner
}

// file is an input; a packed one is gzip.
type file struct {
	text   string
	packed string
}

func newFixture(t *testing.T, items int, files ...file) *fixture {
	t.Helper()
	p := hosttest.New()
	d := &fixture{Ports: p, t: t, m: inputtest.Manifest(items), Planner: plan.New(p, plan.Options{})}
	for i, f := range files {
		key := fmt.Sprintf("prompts/%d.jsonl", i)
		content := f.text
		if f.packed != "" {
			key += ".gz"
			content = packed(t, f.text)
		}
		d.m.Inputs = append(d.m.Inputs, record.Input{Key: key, Version: hosttest.Put(t, p, key, content),
			Size: int64(len(content)), Packed: f.packed})
	}
	hosttest.Save(t, p, record.ManifestKey(id), d.m)
	return d
}

func packed(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// submitted starts or resumes the plan, and cuts the ranges that are asked for, in
// reverse order.
func (d *fixture) submitted() {
	d.t.Helper()
	if err := d.Submitted(d.t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		d.t.Fatal(err)
	}
	ranges := d.received(host.PlanQueue)
	for i := range ranges {
		if err := d.CutRange(d.t.Context(), ranges[len(ranges)-1-i].(events.PlanRange)); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *fixture) received(q string) (out []events.Payload) {
	ms, err := d.Ports.Queues.Receive(d.t.Context(), q, 1000, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range ms {
		_, p, _ := events.Decode(m.Body)
		out = append(out, p)
		_ = d.Ports.Queues.Ack(d.t.Context(), q, []string{m.Receipt})
	}
	return out
}

func (d *fixture) plan() record.Plan {
	return hosttest.Load[record.Plan](d.t, d.Ports, record.PlanKey(id))
}

// lines returns the run's lines as workers load them: "item file:line", then
// " = " and the line that has its id first, then " ~ " and the item whose answer
// it gets.
func (d *fixture) lines() (out []string) {
	d.t.Helper()
	d.each(func(l input.Line) {
		s := fmt.Sprintf("%d %s:%d", l.Place.Item, l.Place.File, l.Place.Line)
		if l.Duplicate != nil {
			s += fmt.Sprintf(" = %s:%d", l.Duplicate.File, l.Duplicate.Line)
		}
		if l.Original != nil {
			s += fmt.Sprintf(" ~ %d", l.Original.Item)
		}
		out = append(out, s)
	})
	return out
}

func (d *fixture) each(do func(input.Line)) {
	d.t.Helper()
	x := input.NewIndex(d.Ports.Blobs, d.Ports.Docs)
	for n := range d.plan().Shards {
		e, row, err := x.FindShard(d.t.Context(), id, n)
		if err != nil {
			d.t.Fatal(err)
		}
		s, err := x.LoadShard(d.t.Context(), d.m, e.Range, row)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, l := range s.Lines {
			do(l)
		}
	}
}

func TestItemsAreNumberedAcrossAllInputs(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 2, file{text: inputtest.Prompts(0, 3)}, file{},
		file{text: "\n" + inputtest.Prompts(3, 1), packed: input.Gzip}, file{text: inputtest.Prompts(4, 1)})
	d.submitted()
	p := d.plan()
	if !p.Complete() || p.Total != 3 || p.Shards != 4 || p.Items != 5 || p.Ranges[2].Key != record.UnpackedKey(id, 2) {
		t.Fatalf("the plan is %+v", p)
	}
	want := "0 prompts/0.jsonl:1, 1 prompts/0.jsonl:2, 2 prompts/0.jsonl:3, 3 prompts/2.jsonl.gz:2, 4 prompts/3.jsonl:1"
	if got := strings.Join(d.lines(), ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRepeatedAndConcurrentPlanningChangesNothing(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, file{text: inputtest.Prompts(0, 20) + `{"id":"a","prompt":"x"}` + "\n"},
		file{text: `{"id":"a","prompt":"y"}` + "\n"})
	if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, r := range d.received(host.PlanQueue) {
		for range 4 {
			all.Go(func() {
				if err := d.CutRange(t.Context(), r.(events.PlanRange)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	once := d.plan()
	if !once.Complete() || once.Shards != 22 || once.Items != 22 {
		t.Fatalf("the plan is %+v", once)
	}
	d.submitted()
	if again := d.plan(); again.Items != once.Items || again.Merged != once.Merged {
		t.Errorf("the plan became %+v", again)
	}
	if lines := d.lines(); lines[21] != "21 prompts/1.jsonl:1 = prompts/0.jsonl:21" {
		t.Errorf("the last is %s", lines[21])
	}
}

// Planning records a problem, and continues when it is asked for again after the
// problem is solved.
func TestProblemOfAnInputIsRecordedAndCleared(t *testing.T) {
	t.Parallel()
	good := file{text: inputtest.Prompts(0, 2)}
	for name, c := range map[string]struct {
		files []file
		harm  func(*fixture)
		want  record.ProblemKind
		solve func(*fixture) // nil if it can't be solved
	}{
		"missing": {[]file{good}, func(d *fixture) { d.hide("prompts/0.jsonl") }, record.InputMissing, func(d *fixture) {
			d.Ports.Blobs.(*hidingBlobs).hidden = ""
		}},
		"changed": {[]file{good}, func(d *fixture) {
			hosttest.Put(d.t, d.Ports, "prompts/0.jsonl", "{}\n")
		}, record.InputChanged, nil},
		"not an archive": {[]file{good}, func(d *fixture) {
			d.m.Inputs[0].Packed = input.Zstd
			hosttest.Save(d.t, d.Ports, record.ManifestKey(id), d.m)
		}, record.InputBroken, nil},
		"archive too large unpacked": {[]file{{text: inputtest.Prompts(0, 99), packed: input.Gzip}}, func(d *fixture) {
			d.m.Config.Input.MaxUnpacked = 100
			hosttest.Save(d.t, d.Ports, record.ManifestKey(id), d.m)
		}, record.InputBroken, nil},
	} {
		d := newFixture(t, 1, c.files...)
		c.harm(d)
		d.submitted()
		p := d.plan()
		if p.ProblemKind != c.want || p.Problem == "" {
			t.Errorf("%s: the plan is %+v", name, p)
		}
		if got := d.received(host.CoordinateQueue); len(got) != 1 {
			t.Errorf("%s: coordinate received %v", name, got)
		}
		if c.solve == nil {
			continue
		}
		c.solve(d)
		d.submitted()
		if p := d.plan(); p.Problem != "" || p.ProblemKind != "" || !p.Complete() || p.Items != 2 {
			t.Errorf("%s: afterwards the plan is %+v", name, p)
		}
	}
}

// hide makes the bucket return NotFound for an object.
func (d *fixture) hide(key string) {
	d.Ports.Blobs = &hidingBlobs{d.Ports.Blobs, key}
	d.Planner = plan.New(d.Ports, plan.Options{})
}

type hidingBlobs struct {
	blob.Store
	hidden string
}

func (h *hidingBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == h.hidden {
		return nil, blob.Info{}, fault.New(fault.NotFound, "there is no such object")
	}
	return h.Store.Get(ctx, key, o)
}

func (h *hidingBlobs) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if key == h.hidden {
		return blob.Info{}, fault.New(fault.NotFound, "there is no such object")
	}
	return h.Store.Stat(ctx, key, version)
}

func TestPlanContinuesAfterAnInputWasMissingDuringACut(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, file{text: inputtest.Prompts(0, 2)}, file{text: inputtest.Prompts(2, 2)})
	if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		t.Fatal(err)
	}
	d.hide("prompts/1.jsonl")
	for _, r := range d.received(host.PlanQueue) {
		if err := d.CutRange(t.Context(), r.(events.PlanRange)); err != nil {
			t.Fatal(err)
		}
	}
	if p := d.plan(); p.ProblemKind != record.InputMissing || p.Merged != 1 || p.Shards != 2 {
		t.Fatalf("the plan is %+v", p)
	}
	d.Ports.Blobs.(*hidingBlobs).hidden = ""
	d.submitted()
	if p := d.plan(); p.Problem != "" || !p.Complete() || p.Items != 4 || len(d.lines()) != 4 {
		t.Errorf("afterwards the plan is %+v", p)
	}
}

// An input that was moved goes on under its new version if the planned ranges have its
// bytes; of an input of which nothing is planned, submit must have found that it is the
// run's.
func TestMovedInputIsPlannedOn(t *testing.T) {
	t.Parallel()
	padding := `{"prompt":"` + strings.Repeat("a", 1<<20) + "\"}\n"
	content := strings.Repeat(padding, 65) // of two ranges
	other := strings.Replace(content, "aaa", "bbb", 1)
	for name, c := range map[string]struct {
		cut   bool // the first range is cut before
		now   string
		found bool
		want  record.ProblemKind
	}{
		"same bytes":                      {cut: true, now: content},
		"other bytes":                     {cut: true, now: other, want: record.InputChanged},
		"nothing planned, found again":    {now: content, found: true},
		"nothing planned, another object": {now: content, want: record.InputChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, 0, file{text: content})
			d.Planner = plan.New(d.Ports, plan.Options{Bucket: "local"})
			if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
				t.Fatal(err)
			}
			ranges := d.received(host.PlanQueue)
			if c.cut {
				if err := d.CutRange(t.Context(), ranges[0].(events.PlanRange)); err != nil {
					t.Fatal(err)
				}
			}
			version := hosttest.Put(t, d.Ports, "prompts/0.jsonl", c.now)
			if c.found {
				upload := identity.UploadRun("local", "prompts/0.jsonl", version)
				hosttest.Save(t, d.Ports, record.FoundKey(upload), record.FoundInput{Run: id})
			}
			for _, r := range ranges {
				if err := d.CutRange(t.Context(), r.(events.PlanRange)); err != nil {
					t.Fatal(err)
				}
			}
			p := d.plan()
			if p.ProblemKind != c.want || (c.want == "") != p.Complete() || p.Complete() && p.Items != 65 {
				t.Errorf("the plan is %+v", p)
			}
			if p.Complete() && p.Ranges[0].Version != version {
				t.Errorf("the plan has version %s, want %s", p.Ranges[0].Version, version)
			}
		})
	}
}

func TestDamagedPlanEndsItsRun(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"the range result": record.RangeKey(id, 1), "a hash list": record.PlanHashesKey(id, 1, 0, record.HashIDs),
	} {
		for what, harm := range map[string]func(*fixture){
			"damaged": func(d *fixture) { hosttest.Put(t, d.Ports, key, "{") },
			"gone":    func(d *fixture) { _ = d.Ports.Blobs.Delete(t.Context(), key, "") },
		} {
			if what == "gone" && key == record.RangeKey(id, 1) {
				continue // the range is then not planned yet
			}
			d := newFixture(t, 0, file{text: `{"id":"a","prompt":"x"}` + "\n"},
				file{text: `{"id":"b","prompt":"y"}` + "\n"})
			asked := d.asked()
			for _, k := range []int{1, 0} {
				if k == 0 {
					harm(d)
				}
				if err := d.CutRange(t.Context(), asked[k]); err != nil {
					t.Fatal(err)
				}
			}
			p := d.plan()
			if p.Merged != 1 || p.ProblemKind != record.InputBroken || !strings.Contains(p.Problem, "submit the file again") {
				t.Errorf("%s is %s: the plan is %+v", name, what, p)
			}
			if got := d.received(host.CoordinateQueue); len(got) != 2 {
				t.Errorf("%s is %s: coordinate received %v", name, what, got)
			}
		}
	}
}

func TestRefusedRunIsNotPlanned(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, file{text: inputtest.Prompts(0, 2)})
	d.m.Refused = "no pool"
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.submitted()
	if p := d.plan(); p.Total != 0 {
		t.Errorf("the plan is %+v", p)
	}
}

func TestRangeOutsideThePlanIsInvalid(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 1, file{text: inputtest.Prompts(0, 2)})
	d.submitted()
	err := d.CutRange(t.Context(), events.PlanRange{Run: string(id), Range: 9, Limit: 1})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}
