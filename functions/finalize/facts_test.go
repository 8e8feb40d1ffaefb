package finalize_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/functions/finalize/facts"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// factRun is a run of 10 shards of 2 items, whose facts have parts of 6 items. Shard 1 has an
// error row, shard 8 was sealed with a checkpoint of its second item, and shard 9 was never sent.
type factRun struct {
	fixture
	manifest record.Manifest
}

const factShards = 10

func newFactRun(t *testing.T) factRun {
	t.Helper()
	d := factRun{fixture: fixture{t: t, Ports: hosttest.New()}}
	m := inputtest.Manifest(2)
	m.Config.Facts = config.Facts{Parquet: true, PartItems: 6}
	m.Config.Grades = []config.Grade{{Name: "right", Kind: config.GradeExact}, {Name: "style", Kind: config.GradeHTTP}}
	var lines strings.Builder
	for n := range 2 * factShards {
		fmt.Fprintf(&lines, "{\"id\":\"id-%d\",\"prompt\":\"prompt %d\"}\n", n, n)
	}
	d.manifest = inputtest.Plan(t, d.Ports, m, lines.String())
	for n := range factShards - 2 {
		first := result.Row{Item: 0, Bytes: d.answer(2 * n)}
		if n == 1 {
			first = result.Row{Item: 0, Class: fault.Refused, Bytes: dialect.AppendError(nil, dialect.Plain,
				dialect.Failure{ID: "id-2", Place: dialect.Place{Item: 2, File: "prompts/0.jsonl", Line: 3},
					Class: fault.Refused, Message: "not that"})}
		}
		d.commit(n, []result.Row{first, {Item: 1, Bytes: d.answer(2*n + 1)}})
	}
	d.seal(8, []result.Row{{Item: 1, Bytes: d.answer(17)}})
	return d
}

// answer returns the row of an answered item. Odd ones have no score of the grader style.
func (d factRun) answer(item int) []byte {
	style := grade.Score{Value: float64(item) / 20}
	if item%2 == 1 {
		style = grade.Missing(grade.TimedOut)
	}
	members := grade.AppendMembers(nil, d.manifest.Config.Grades, [][]grade.Score{{{Value: 1}, style}})
	return fmt.Appendf(nil, `{"id":"id-%d","prompt":"prompt %d","completion":"answer %d","finish_reason":"stop",`+
		`"usage":{"prompt_tokens":2,"completion_tokens":%d},%s}`+"\n", item, item, item, item, members)
}

// at is the state of the run in a phase, with the shards below frontier done.
func (d factRun) at(p run.Phase, frontier int) run.State {
	s := run.New(id)
	s.Phase, s.Reason, s.Message = p, run.ReasonStopped, "enough"
	s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier = factShards, 2*factShards, true, 9, 9
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: frontier})
	return s
}

func (d factRun) step(p run.Phase, frontier int) {
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(id), d.at(p, frontier))
}

// parts returns the bytes of the run's parts, by their number.
func (d factRun) parts() (out [][]byte) {
	for n := 0; ; n++ {
		r, _, err := d.Blobs.Get(context.Background(), record.FactsKey(id, n), blob.GetOptions{})
		if fault.Is(err, fault.NotFound) {
			return out
		}
		if err != nil {
			d.t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			d.t.Fatal(err)
		}
		out = append(out, b)
	}
}

// row is a row of facts as the columns name it.
type row struct {
	Item             uint64   `parquet:"item"`
	ID               *string  `parquet:"id,optional"`
	Status           string   `parquet:"status"`
	Class            *string  `parquet:"class,optional"`
	Error            *string  `parquet:"error,optional"`
	FinishReason     *string  `parquet:"finish_reason,optional"`
	Prompt           *string  `parquet:"prompt,optional"`
	Completion       *string  `parquet:"completion,optional"`
	Completions      *string  `parquet:"completions,optional"`
	PromptTokens     *int64   `parquet:"prompt_tokens,optional"`
	CompletionTokens *int64   `parquet:"completion_tokens,optional"`
	Score            *float64 `parquet:"score,optional"`
	Right            *float64 `parquet:"score_right,optional"`
	Style            *float64 `parquet:"score_style,optional"`
}

func rowsOf(t *testing.T, parts [][]byte) (out []row) {
	t.Helper()
	for n, b := range parts {
		rows, err := parquet.Read[row](bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatalf("part %d: %v", n, err)
		}
		out = append(out, rows...)
	}
	return out
}

// The parts of a run that ended in the middle, whatever wrote them, are these.
func wantParts(t *testing.T) [][]byte {
	t.Helper()
	d := newFactRun(t)
	d.step(run.Finalizing, 9)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	return d.parts()
}

func TestFactsHaveEachItemOnceInOrder(t *testing.T) {
	t.Parallel()
	parts := wantParts(t)
	if len(parts) != 4 {
		t.Fatalf("%d parts, want 4", len(parts))
	}
	rows := rowsOf(t, parts)
	if len(rows) != 2*factShards {
		t.Fatalf("%d rows, want %d", len(rows), 2*factShards)
	}
	for n, r := range rows {
		want := row{Item: uint64(n), ID: new(fmt.Sprintf("id-%d", n)), Prompt: new(fmt.Sprintf("prompt %d", n))}
		switch {
		case n == 2:
			want.Status, want.Class, want.Error = "failed", new("refused"), new("not that")
		case n == 16 || n > 17:
			want.Status, want.Class, want.Error = "failed", new("canceled"), new("the run ended first: enough")
		default:
			want.Status, want.FinishReason, want.Completion = "answered", new("stop"), new(fmt.Sprintf("answer %d", n))
			want.PromptTokens, want.CompletionTokens, want.Right = new(int64(2)), new(int64(n)), new(1.0)
			if n%2 == 0 {
				want.Style, want.Score = new(float64(n)/20), new((1+float64(n)/20)/2)
			}
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("item %d (-want +got)\n%s", n, diff)
		}
	}
}

func TestPartsSayWhereTheyAre(t *testing.T) {
	t.Parallel()
	want := []string{
		`{"part":0,"first_shard":0,"shards":3,"first_item":0,"items":6}`,
		`{"part":1,"first_shard":3,"shards":3,"first_item":6,"items":6}`,
		`{"part":2,"first_shard":6,"shards":3,"first_item":12,"items":6}`,
		`{"part":3,"first_shard":9,"shards":1,"first_item":18,"items":2}`,
	}
	for n, b := range wantParts(t) {
		f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := f.Lookup(facts.PositionKey); got != want[n] {
			t.Errorf("part %d is %s, want %s", n, got, want[n])
		}
	}
}

func TestPartsAreTheSameHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	want := wantParts(t)
	ask := func(t *testing.T, f *finalize.Finalizer) {
		if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
			t.Error(err)
		}
	}
	for name, write := range map[string]func(*testing.T, factRun){
		"behind the commit frontier": func(t *testing.T, d factRun) {
			states := []run.State{d.at(run.Running, 4), d.at(run.Running, 6), d.at(run.Ending, 9), d.at(run.Finalizing, 9)}
			err := d.finalizer().Follow(t.Context(), d.at(run.Running, 1), func(context.Context) (run.State, error) {
				s := states[0]
				states = states[1:]
				return s, nil
			})
			if err != nil {
				t.Error(err)
			}
		},
		"by calls while the run goes on": func(t *testing.T, d factRun) {
			d.step(run.Ending, 9)
			ask(t, d.finalizer())
			if got := len(d.parts()); got != 2 {
				t.Errorf("%d parts, want 2: a sealed shard waits for the end", got)
			}
			d.step(run.Finalizing, 9)
			ask(t, d.finalizer())
		},
		"by several calls at once": func(t *testing.T, d factRun) {
			for _, s := range []run.State{d.at(run.Running, 3), d.at(run.Running, 7), d.at(run.Finalizing, 9)} {
				hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() { ask(t, d.finalizer()) })
				}
				all.Wait()
			}
		},
		"in segments": func(t *testing.T, d factRun) {
			d.step(run.Finalizing, 9)
			handleAll(t, d.Ports, inSegments(d.Ports, tiny))
		},
		"after a mark was lost": func(t *testing.T, d factRun) {
			d.step(run.Running, 8)
			ask(t, d.finalizer())
			if err := d.Blobs.Delete(t.Context(), record.FactsMarkKey(id, 0, 3), ""); err != nil {
				t.Error(err)
			}
			d.step(run.Finalizing, 9)
			ask(t, d.finalizer())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFactRun(t)
			write(t, d)
			if diff := cmp.Diff(want, d.parts()); diff != "" {
				t.Errorf("other parts: %d bytes of difference, of %d parts", len(diff), len(d.parts()))
			}
		})
	}
}

func TestWholePartsAppearWhileTheRunGoesOn(t *testing.T) {
	t.Parallel()
	d := newFactRun(t)
	for _, c := range []struct{ frontier, parts int }{{0, 0}, {2, 0}, {3, 1}, {5, 1}, {8, 2}} {
		d.step(run.Running, c.frontier)
		if err := d.finalize(); err != nil {
			t.Fatal(err)
		}
		if got := len(d.parts()); got != c.parts {
			t.Errorf("%d parts before shard %d, want %d", got, c.frontier, c.parts)
		}
	}
}

// A process crashes at each of its writes in turn, before or after it took effect, and the next
// one goes on.
func TestFactsSurviveACrashAtEachWrite(t *testing.T) {
	t.Parallel()
	want := wantParts(t)
	for _, late := range []bool{false, true} {
		for write, done := 0, false; !done; write++ {
			d := newFactRun(t)
			ports := d.Ports
			crashing := hosttest.Crashing(ports, write, late)
			done = true
			for _, s := range []run.State{d.at(run.Running, 3), d.at(run.Running, 8), d.at(run.Finalizing, 9)} {
				hosttest.Save(t, ports, record.CoordinatorKey(id), s)
				f := finalize.New(crashing, input.NewIndex(ports.Blobs, ports.Docs), finalize.Options{})
				if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
					done = false
				}
			}
			if err := d.finalize(); err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(want, d.parts()) {
				t.Fatalf("crash at write %d, late %t: the parts differ", write, late)
			}
		}
	}
}

func TestRunWithoutItemsHasAnEmptyPart(t *testing.T) {
	t.Parallel()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.Manifest(2)
	m.Config.Facts.Parquet = true
	inputtest.Plan(t, d.Ports, m, "")
	s := run.New(id)
	s.Phase, s.Reason, s.Complete = run.Finalizing, run.ReasonDone, true
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	for range 2 {
		if err := d.finalize(); err != nil {
			t.Fatal(err)
		}
	}
	parts := factRun{fixture: d}.parts()
	if len(parts) != 1 || len(rowsOf(t, parts)) != 0 {
		t.Errorf("%d parts with %d rows, want one without", len(parts), len(rowsOf(t, parts)))
	}
}

func TestRunWithoutTheKeyHasNoFacts(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.save(run.Running, 2)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	if infos, err := d.Blobs.List(t.Context(), record.RunsPrefix, "", 10); err != nil || len(infos) > 0 {
		t.Errorf("%v, %v, want no objects", infos, err)
	}
}

// A call whose time is nearly over when a part is written hands the rest to another one.
func TestLateCallAsksForTheRestOfTheFacts(t *testing.T) {
	t.Parallel()
	d := newFactRun(t)
	d.step(run.Finalizing, 9)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	hurried := d.Ports
	jump := &jumpingClock{Clock: d.Clock}
	hurried.Clock, hurried.Blobs = jump, jumpAtFacts{d.Blobs, jump}
	f := finalize.New(hurried, input.NewIndex(hurried.Blobs, hurried.Docs), finalize.Options{})
	err := f.Finalize(ctx, events.Finalize{Run: string(id)})
	if got := len(d.parts()); err != nil || got != 1 || d.exists(record.SummaryFile) {
		t.Fatalf("%d parts, %v, want the first, and no summary", got, err)
	}
	if got := asks(t, d.Ports); !cmp.Equal(got, []events.Payload{events.Finalize{Run: string(id)}}) {
		t.Errorf("it asks for %v", got)
	}
	handleAll(t, d.Ports, d.finalizer())
	if !cmp.Equal(wantParts(t), d.parts()) {
		t.Error("the parts differ")
	}
}

// jumpingClock is a clock that jumps to the end of a call.
type jumpingClock struct {
	clock.Clock
	late atomic.Bool
}

func (c *jumpingClock) Now() time.Time {
	if c.late.Load() {
		return c.Clock.Now().Add(time.Hour)
	}
	return c.Clock.Now()
}

// jumpAtFacts is a bucket in which it takes long to write facts.
type jumpAtFacts struct {
	blob.Store
	clock *jumpingClock
}

func (b jumpAtFacts) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if strings.HasSuffix(key, ".parquet") {
		b.clock.late.Store(true)
	}
	return b.Store.Put(ctx, key, r, o)
}
