package plan_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

const id = inputtest.RunID

// desk is a world with one submitted run.
type desk struct {
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

func newDesk(t *testing.T, items int, files ...file) *desk {
	t.Helper()
	p := host.Ports{Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(),
		Queues: memory.NewQueues(clock.System{}), Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "test"}
	d := &desk{Ports: p, t: t, m: inputtest.Manifest(items), Planner: plan.New(p)}
	for i, f := range files {
		key := fmt.Sprintf("prompts/%d.jsonl", i)
		content := f.text
		if f.packed != "" {
			key += ".gz"
			content = packed(t, f.text)
		}
		d.m.Inputs = append(d.m.Inputs, record.Input{Key: key, Version: inputtest.Put(t, p, key, content), Size: int64(len(content)), Packed: f.packed})
	}
	inputtest.Save(t, p, record.ManifestKey(id), d.m)
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

// submitted asks for the plan, and cuts the ranges that are asked for, in the
// reverse of their order.
func (d *desk) submitted() {
	d.t.Helper()
	if err := d.Submitted(d.t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		d.t.Fatal(err)
	}
	ranges := d.received(host.PlanQueue)
	for i := range ranges {
		if err := d.Range(d.t.Context(), ranges[len(ranges)-1-i].(events.PlanRange)); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *desk) received(q string) (out []events.Payload) {
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

func (d *desk) plan() record.Plan {
	return inputtest.Load[record.Plan](d.t, d.Ports, record.PlanKey(id))
}

// lines are the run's, as workers load them: "item file:line id text".
func (d *desk) lines() (out []string) {
	d.t.Helper()
	x := input.NewIndex(d.Ports.Blobs, d.Ports.Docs)
	for n := range d.plan().Shards {
		e, row, err := x.Find(d.t.Context(), id, n)
		if err != nil {
			d.t.Fatal(err)
		}
		s, err := x.Load(d.t.Context(), d.m, e.Range, row)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, l := range s.Lines {
			dup := ""
			if l.Duplicate != nil {
				dup = fmt.Sprintf(" = %s:%d", l.Duplicate.File, l.Duplicate.Line)
			}
			if l.Original != nil {
				dup += fmt.Sprintf(" ~ %d", l.Original.Item)
			}
			out = append(out, fmt.Sprintf("%d %s:%d%s", l.Place.Item, l.Place.File, l.Place.Line, dup))
		}
	}
	return out
}

func TestItemsAreNumberedThroughAllInputs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 2, file{text: inputtest.Prompts(0, 3)}, file{}, file{text: "\n" + inputtest.Prompts(3, 1), packed: input.Gzip}, file{text: inputtest.Prompts(4, 1)})
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

func TestTheFirstLineOfAnIDWinsAcrossRanges(t *testing.T) {
	t.Parallel()
	a, b := `{"id":"a","prompt":"x"}`+"\n", `{"id":"b","prompt":"x"}`+"\n"
	d := newDesk(t, 0, file{text: "\n" + a}, file{text: b + b + a}, file{text: inputtest.Prompts(0, 1)}, file{text: "\n\n" + b + a})
	d.submitted()
	want := "0 prompts/0.jsonl:2, 1 prompts/1.jsonl:1, 2 prompts/1.jsonl:2 = prompts/1.jsonl:1, 3 prompts/1.jsonl:3 = prompts/0.jsonl:2, 4 prompts/2.jsonl:1, 5 prompts/3.jsonl:3 = prompts/1.jsonl:1, 6 prompts/3.jsonl:4 = prompts/0.jsonl:2"
	if got := strings.Join(d.lines(), ", "); got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
}

func TestTheFirstLineOfARequestIsTheOriginalOfAllOthers(t *testing.T) {
	t.Parallel()
	ask := func(id, prompt string) string { return fmt.Sprintf(`{"id":%q,"prompt":%q}`+"\n", id, prompt) }
	d := newDesk(t, 0, file{text: ask("1", "x") + ask("2", "y") + "[\n"}, file{text: ask("1", "z") + ask("3", "z") + ask("4", "z") + `{ "prompt" : "x"}` + "\n"}, file{text: ask("5", "y") + ask("2", "x") + "[\n"})
	d.m.Config.Dedupe = config.Dedupe{Enabled: true, Sampled: true}
	inputtest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.submitted()
	want := "0 prompts/0.jsonl:1, 1 prompts/0.jsonl:2, 2 prompts/0.jsonl:3, " +
		"3 prompts/1.jsonl:1 = prompts/0.jsonl:1, 4 prompts/1.jsonl:2, 5 prompts/1.jsonl:3 ~ 4, 6 prompts/1.jsonl:4 ~ 0, " +
		"7 prompts/2.jsonl:1 ~ 1, 8 prompts/2.jsonl:2 = prompts/0.jsonl:2, 9 prompts/2.jsonl:3"
	if got := strings.Join(d.lines(), ", "); got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
}

func TestOnlyRequestsThatAreAskedAndAnsweredAlikeAreAskedOnce(t *testing.T) {
	t.Parallel()
	line := func(id int, body string) string {
		return fmt.Sprintf(`{"custom_id":"%d","url":"/v1/chat/completions","body":{"messages":[{}]%s}}`+"\n", id, body)
	}
	twice := func(body string) file { return file{text: line(1, body) + line(2, body)} }
	for name, c := range map[string]struct {
		file   file
		dedupe config.Dedupe
		want   bool
	}{
		"off":                           {twice(`,"temperature":0`), config.Dedupe{}, false},
		"the temperature is 0":          {twice(`,"temperature":0`), config.Dedupe{Enabled: true}, true},
		"no temperature":                {twice(``), config.Dedupe{Enabled: true}, false},
		"no temperature, but included":  {twice(``), config.Dedupe{Enabled: true, Sampled: true}, true},
		"several answers":               {twice(`,"temperature":0,"n":2`), config.Dedupe{Enabled: true}, false},
		"several answers, but included": {twice(`,"n":2`), config.Dedupe{Enabled: true, Sampled: true}, true},
		"another seed":                  {file{text: line(1, `,"seed":1`) + line(2, `,"seed":2`)}, config.Dedupe{Enabled: true, Sampled: true}, false},
		"another model than the run's":  {twice(`,"model":"other"`), config.Dedupe{Enabled: true, Sampled: true}, false},
	} {
		d := newDesk(t, 0, c.file)
		d.m.Dialect, d.m.Config.Dedupe = "openai", c.dedupe
		inputtest.Save(t, d.Ports, record.ManifestKey(id), d.m)
		d.submitted()
		if lines := d.lines(); len(lines) != 2 || strings.Contains(lines[1], "~ 0") != c.want || strings.Contains(lines[0], "~") {
			t.Errorf("%s: %v", name, lines)
		}
	}
}

// TestManyRangesKeepFewLists has a file a range: more of them than lists are
// joined at once, on two levels.
func TestManyRangesKeepFewLists(t *testing.T) {
	t.Parallel()
	const ranges = 75
	var files []file
	for k := range ranges {
		text := fmt.Sprintf(`{"id":"%d","prompt":"x"}`+"\n"+`{"id":"%d","prompt":"x"}`+"\n", k, k/2)
		if k%10 == 3 {
			text = inputtest.Prompts(k, 1)
		}
		files = append(files, file{text: text})
	}
	d := newDesk(t, 0, files...)
	d.submitted()
	p := d.plan()
	if len(p.IDs) > 14 || p.IDs[0].Level != 2 {
		t.Errorf("%d lists: %v", len(p.IDs), p.IDs)
	}
	first := map[string]string{}
	lines := strings.Join(d.lines(), "\n") + "\n"
	for k, f := range files {
		for n, l := range strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") {
			at := fmt.Sprintf("prompts/%d.jsonl:%d", k, n+1)
			own, _, _ := strings.Cut(l, ",")
			want := at + "\n"
			if f, ok := first[own]; ok {
				want = at + " = " + f + "\n"
			} else {
				first[own] = at
			}
			if !strings.Contains(lines, " "+want) {
				t.Errorf("there is no line %q", want)
			}
		}
	}
}

// TestARangeOfTinyLines has more repeats than are in memory at once, and more
// hashes than are sorted at once.
func TestARangeOfTinyLines(t *testing.T) {
	t.Parallel()
	const n = 1<<19 + 1000
	d := newDesk(t, 1<<15, file{text: strings.Repeat(`{"id":1}`+"\n", n-1) + `{"id":2}` + "\n"})
	d.submitted()
	lines := d.lines()
	if len(lines) != n || strings.Contains(lines[0], "=") || strings.Contains(lines[n-1], "=") || d.plan().IDs[0].Count != 2 {
		t.Fatalf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
	for i, l := range lines[1 : n-1] {
		if want := fmt.Sprintf("%d prompts/0.jsonl:%d = prompts/0.jsonl:1", i+1, i+2); l != want {
			t.Fatalf("%s, want %s", l, want)
		}
	}
}

func TestPlanningTwiceAndAtOnceChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1, file{text: inputtest.Prompts(0, 20) + `{"id":"a","prompt":"x"}` + "\n"}, file{text: `{"id":"a","prompt":"y"}` + "\n"})
	if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, r := range d.received(host.PlanQueue) {
		for range 4 {
			all.Go(func() {
				if err := d.Range(t.Context(), r.(events.PlanRange)); err != nil {
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

// TestTrouble says what planning reports, and that it goes on when asked to
// again and the trouble is over.
func TestTrouble(t *testing.T) {
	t.Parallel()
	good := file{text: inputtest.Prompts(0, 2)}
	for name, c := range map[string]struct {
		files []file
		harm  func(*desk)
		want  record.Trouble
		mend  func(*desk) // nil if it can't be
	}{
		"missing from the start": {[]file{good}, func(d *desk) { d.hide("prompts/0.jsonl") }, record.InputMissing, func(d *desk) { d.Ports.Blobs.(*hiding).hidden = "" }},
		"changed":                {[]file{good}, func(d *desk) { inputtest.Put(d.t, d.Ports, "prompts/0.jsonl", "{}\n") }, record.InputChanged, nil},
		"an archive that is none": {[]file{good}, func(d *desk) {
			d.m.Inputs[0].Packed = input.Zstd
			inputtest.Save(d.t, d.Ports, record.ManifestKey(id), d.m)
		}, record.InputBroken, nil},
		"an archive that unpacks to too much": {[]file{{text: inputtest.Prompts(0, 99), packed: input.Gzip}}, func(d *desk) {
			d.m.Config.Input.MaxUnpacked = 100
			inputtest.Save(d.t, d.Ports, record.ManifestKey(id), d.m)
		}, record.InputBroken, nil},
	} {
		d := newDesk(t, 1, c.files...)
		c.harm(d)
		d.submitted()
		p := d.plan()
		if p.Trouble != c.want || p.Problem == "" {
			t.Errorf("%s: the plan is %+v", name, p)
		}
		if said := d.received(host.CoordinateQueue); len(said) != 1 {
			t.Errorf("%s: coordinate was told %v", name, said)
		}
		if c.mend == nil {
			continue
		}
		c.mend(d)
		d.submitted()
		if p := d.plan(); p.Problem != "" || p.Trouble != "" || !p.Complete() || p.Items != 2 {
			t.Errorf("%s: afterwards the plan is %+v", name, p)
		}
	}
}

// hide lets the bucket not find an object any more.
func (d *desk) hide(key string) {
	d.Ports.Blobs = &hiding{d.Ports.Blobs, key}
	d.Planner = plan.New(d.Ports)
}

type hiding struct {
	blob.Store
	hidden string
}

func (h *hiding) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == h.hidden {
		return nil, blob.Info{}, fault.New(fault.NotFound, "there is no such object")
	}
	return h.Store.Get(ctx, key, o)
}

func (h *hiding) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if key == h.hidden {
		return blob.Info{}, fault.New(fault.NotFound, "there is no such object")
	}
	return h.Store.Stat(ctx, key, version)
}

func TestAnInputThatVanishesWhileItIsCutPausesThePlanAndItGoesOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1, file{text: inputtest.Prompts(0, 2)}, file{text: inputtest.Prompts(2, 2)})
	if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
		t.Fatal(err)
	}
	d.hide("prompts/1.jsonl")
	for _, r := range d.received(host.PlanQueue) {
		if err := d.Range(t.Context(), r.(events.PlanRange)); err != nil {
			t.Fatal(err)
		}
	}
	if p := d.plan(); p.Trouble != record.InputMissing || p.Merged != 1 || p.Shards != 2 {
		t.Fatalf("the plan is %+v", p)
	}
	d.Ports.Blobs.(*hiding).hidden = ""
	d.submitted()
	if p := d.plan(); p.Problem != "" || !p.Complete() || p.Items != 4 || len(d.lines()) != 4 {
		t.Errorf("afterwards the plan is %+v", p)
	}
}

func TestARefusedRunIsNotPlanned(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1, file{text: inputtest.Prompts(0, 2)})
	d.m.Refused = "no pool"
	inputtest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.submitted()
	if p := d.plan(); p.Total != 0 {
		t.Errorf("the plan is %+v", p)
	}
}

func TestARangeOfNoPlanIsInvalid(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1, file{text: inputtest.Prompts(0, 2)})
	d.submitted()
	if err := d.Range(t.Context(), events.PlanRange{Run: string(id), Range: 9, Limit: 1}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}
