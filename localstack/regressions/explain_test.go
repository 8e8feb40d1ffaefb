package regressions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/gpuworker/engine"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// explain returns the report on the only item that the text names.
func (p *system) explain(id identity.RunID, item string) diagnosis.ItemReport {
	p.t.Helper()
	x, err := p.user().Explain(p.t.Context(), id, item)
	must(p.t, err)
	if len(x.Items) != 1 {
		p.t.Fatalf("%q names %d items, want 1", item, len(x.Items))
	}
	return x.Items[0]
}

const mixed = `{"id":"good","prompt":"number 0"}

{"id":"broken","prompt":
{"id":"good","prompt":"number 2"}
{"prompt":"number 3"}
{"id":"refuse me","prompt":"REFUSE"}
{"id":"f\u00fcr","prompt":"number 5"}
`

// refusing is an engine's answer function that refuses prompts with REFUSE.
func refusing(ctx context.Context, r engine.Request) (engine.Answer, error) {
	if strings.Contains(string(r.Body), "REFUSE") {
		return engine.Answer{}, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
			Err: fault.New(fault.Invalid, "status 400: no")}
	}
	return mocked(ctx, r)
}

// A run whose result was lost ends, and says which object is missing.
func TestLostResultIsExplained(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 2")
		first := make(chan struct{})
		p.functions()
		answer := func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			if strings.Contains(string(r.Body), "number 0") {
				<-first
			}
			return mocked(ctx, r)
		}
		p.work(setup{inFlight: 4, engine: newRecordingEngine(answer)})
		id := p.upload("prompts/x.jsonl", prompts(4))
		p.await("the second shard is done", func() bool { return p.state(id).Counts.OK == 2 })
		results, err := p.ports.Blobs.List(t.Context(), record.ShardObjectKey(id, 1, 1, ""), "", 10)
		must(t, err)
		for _, o := range results {
			must(t, p.ports.Blobs.Delete(t.Context(), o.Key, ""))
		}
		close(first)
		o := p.awaitEnd(id)
		o.wantCounts(t, 2, 2)
		x, err := p.user().Explain(t.Context(), id, "")
		must(t, err)
		if told := x.Next[len(x.Next)-1]; len(results) == 0 || !strings.Contains(told, results[0].Key) {
			t.Errorf("it says %q of %v", told, results)
		}
	})
}

func TestEveryItemOfAnEndedRunIsExplained(t *testing.T) {
	t.Parallel()
	for _, cleaned := range []bool{false, true} {
		simulated(t, func(t *testing.T, p *system) {
			p.configure("[shard]\nitems = 2")
			p.functions()
			p.work(setup{engine: newRecordingEngine(refusing)})
			id := p.upload("prompts/x.jsonl", []byte(mixed))
			o := p.awaitEnd(id)
			o.wantCounts(t, 3, 3)
			if cleaned {
				p.clean(id)
			}
			noID := p.explain(id, "#3").ItemID
			for item, want := range map[string]struct {
				state diagnosis.ItemState
				line  uint64
				class fault.Class
				want  string // part of the history
			}{
				"#0":                {diagnosis.Answered, 1, "", "its answer is in runs/"},
				"broken":            {diagnosis.Failed, 3, fault.InvalidLine, "not valid JSON"},
				"x.jsonl:3":         {diagnosis.Failed, 3, fault.InvalidLine, "not valid JSON"},
				"#2":                {diagnosis.Failed, 4, fault.DuplicateID, "line 1 of prompts/x.jsonl has the same id"},
				noID:                {diagnosis.Answered, 5, "", "its item id is " + noID},
				"refuse me":         {diagnosis.Failed, 6, fault.Refused, "status 400: no"},
				"für":               {diagnosis.Answered, 7, "", "its answer is in runs/"},
				"prompts/x.jsonl:7": {diagnosis.Answered, 7, "", "its answer is in runs/"},
			} {
				got := p.explain(id, item)
				history := strings.Join(got.History, "\n")
				if got.State != want.state || got.Line != want.line || got.Class != want.class ||
					!strings.Contains(history, want.want) {
					t.Errorf("cleaned %v, %s: %+v, want %+v", cleaned, item, got, want)
				}
				p.wantOwnRow(item, got, o)
			}
			if x, err := p.user().Explain(t.Context(), id, "good"); err != nil || len(x.Items) != 2 ||
				x.Items[0].State != diagnosis.Answered || x.Items[1].Class != fault.DuplicateID {
				t.Errorf("for an id of two lines: %+v, %v", x.Items, err)
			}
			for item, want := range map[string]string{"unknown": `no line of run ` + string(id) + ` has the id "unknown"`,
				"x.jsonl:2": "line 2 of prompts/x.jsonl is not an item",
				"x.jsonl:8": "line 8 of prompts/x.jsonl is not an item", "#6": "has no item #6",
				"y.jsonl:1": `the id "y.jsonl:1"`} {
				if _, err := p.user().Explain(t.Context(), id, item); !fault.Is(err, fault.NotFound) ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", item, err, want)
				}
			}
		})
	}
}

// wantOwnRow checks that the report points at the item's row in the output files.
func (p *system) wantOwnRow(item string, got diagnosis.ItemReport, o outcome) {
	p.t.Helper()
	if got.Row == nil || got.Row.Key != o.Outputs && got.Row.Key != o.Errors {
		p.t.Errorf("%s: the report has the row %v, want one in the output files", item, got.Row)
		return
	}
	b, _ := p.object(got.Row.Key)
	row, _, _ := bytes.Cut(b[got.Row.Offset:], []byte("\n"))
	lines := p.lines(got.Row.Key)
	id := got.ID
	if id == "" {
		id = got.ItemID
	}
	if id == "für" {
		id = `f\u00fcr`
	}
	if !bytes.HasPrefix(row, fmt.Appendf(nil, `{"id":%q`, id)) && !bytes.HasPrefix(row, []byte(`{"id":"`+id+`"`)) ||
		!bytes.Equal(row, lines[got.Row.Line-1]) {
		p.t.Errorf("%s: the row at %s is %s", item, got.Row, row)
	}
}

// clean deletes the run's work files, as `rollout clean` does.
func (p *system) clean(id identity.RunID) {
	p.t.Helper()
	infos, err := p.ports.Blobs.List(p.t.Context(), record.WorkPrefix+string(id)+"/", "", blob.MaxList)
	must(p.t, err)
	for _, info := range infos {
		must(p.t, p.ports.Blobs.Delete(p.t.Context(), info.Key, ""))
	}
}

func TestItemsAreExplainedWithoutTheInput(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{engine: newRecordingEngine(refusing)})
		id := p.upload("prompts/x.jsonl", []byte(mixed))
		o := p.awaitEnd(id)
		p.clean(id)
		must(t, p.ports.Blobs.Delete(t.Context(), "prompts/x.jsonl", ""))
		for item, want := range map[string]diagnosis.ItemState{"refuse me": diagnosis.Failed, "#1": diagnosis.Failed,
			"x.jsonl:6": diagnosis.Failed, "good": diagnosis.Failed, "für": diagnosis.Answered} {
			got := p.explain(id, item)
			if got.State != want || !strings.Contains(got.History[0], "the input is gone") {
				t.Errorf("%s: %+v, want %s", item, got, want)
			}
			p.wantOwnRow(item, got, o)
		}
	})
}

func TestItemsOfARunningRunAreExplained(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 4")
		hung := make(chan struct{})
		e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			if bytes.Contains(r.Body, []byte("number 0\"")) || bytes.Contains(r.Body, []byte("number 2\"")) {
				return mocked(ctx, r)
			}
			select {
			case hung <- struct{}{}:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return engine.Answer{}, fault.WithKind(fault.Canceled, ctx.Err(), "ask")
		})
		stop := p.functions()
		id := p.upload("prompts/x.jsonl", prompts(2000))
		p.await("the run is under way", func() bool { return p.state(id).NextShard > 0 })
		wantState := func(item string, want diagnosis.ItemState, part string) {
			t.Helper()
			got := p.explain(id, item)
			if text := strings.Join(append(got.History, got.Next), "\n"); got.State != want || !strings.Contains(text, part) {
				t.Errorf("%s is %s, want %s with %q:\n%s", item, got.State, want, part, text)
			}
		}
		wantState("id-0", diagnosis.Waiting, "but no worker of pool default is alive")
		w := p.work(setup{engine: e, inFlight: 4})
		<-hung
		<-hung
		wantState("id-1", diagnosis.Assigned, "shard 0 is with worker worker1")
		wantState("id-1999", diagnosis.Queued, "its shard is sent when earlier ones are done")
		wantState("#100", diagnosis.Waiting, "the next worker with room takes its shard")
		must(t, p.user().Pause(t.Context(), id, "lunch"))
		p.await("the run is paused", func() bool { return p.state(id).Phase == run.Paused })
		wantState("id-0", diagnosis.Checkpointed, "its row is in the shard's checkpoint")
		wantState("id-1", diagnosis.Waiting, "but paused: lunch (`rollout resume "+string(id)+"`")
		must(t, p.user().Stop(t.Context(), id, ""))
		p.awaitEnd(id)
		wantState("id-0", diagnosis.Answered, "its answer is in runs/")
		wantState("id-1", diagnosis.NotProcessed,
			"the run ended before it had a row: its shard was sealed: its class is canceled\nits line is in runs/")
		wantState("id-1999", diagnosis.NotProcessed, "the run ended before its shard was sent")
		w.kill()
		stop()
	})
}

func TestUnplannedItemIsExplained(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		info := p.put("prompts/x.jsonl", []byte(mixed))
		must(t, p.submitter().Uploaded(t.Context(), events.ObjectCreated{Bucket: p.deploy.Bucket, Key: info.Key,
			Version: info.Version, Size: info.Size}))
		id := identity.UploadRun(p.deploy.Bucket, info.Key, info.Version)
		for _, item := range []string{"refuse me", "#4", "x.jsonl:6"} {
			got := p.explain(id, item)
			if got.State != diagnosis.NotPlanned || got.Line != 6 || got.ID != "refuse me" {
				t.Errorf("%s: %+v", item, got)
			}
		}
		x, err := p.user().Explain(t.Context(), id, "good")
		if err != nil || len(x.Items) != 2 || x.Items[0].DuplicateOf != nil || x.Items[1].DuplicateOf == nil ||
			x.Items[1].DuplicateOf.Line != 1 {
			t.Errorf("for an id of two lines: %+v, %v", x.Items, err)
		}
	})
}

func TestCopyIsExplainedByItsOriginal(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 1\n[dedupe]\nenabled = true\nsampled = true")
		p.functions()
		started, resume := make(chan struct{}, 9), make(chan struct{})
		e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			if bytes.Contains(r.Body, []byte("last")) {
				started <- struct{}{}
				<-resume
			}
			return refusing(ctx, r)
		})
		p.work(setup{engine: e, inFlight: 1})
		id := p.upload("prompts/x.jsonl", []byte(`{"id":"a","prompt":"same"}
{"id":"b","prompt":"REFUSE"}
{"id":"c","prompt":"same"}
{"id":"d","prompt":"REFUSE"}
{"id":"e","prompt":"last"}
`))
		<-started
		p.await("four shards are done", func() bool { return p.state(id).Done.Set.Gap(0) == 4 })
		wantState := func(item string, want diagnosis.ItemState, part string) {
			t.Helper()
			got := p.explain(id, item)
			if text := strings.Join(append(got.History, got.Next), "\n"); got.State != want || !strings.Contains(text, part) {
				t.Errorf("%s is %s, want %s with %q:\n%s", item, got.State, want, part, text)
			}
		}
		wantState("a", diagnosis.Answered, "when the run has ended")
		wantState("b", diagnosis.Failed, "status 400: no")
		wantState("c", diagnosis.Copied, "it gets a copy of the row of item 0 when the run has ended")
		wantState("d", diagnosis.Copied, "line 2 of prompts/x.jsonl (item 1): that one is asked for both")
		close(resume)
		o := p.awaitEnd(id)
		for item, want := range map[string]diagnosis.ItemState{"a": diagnosis.Answered, "b": diagnosis.Failed,
			"c": diagnosis.Answered, "d": diagnosis.Failed, "e": diagnosis.Answered} {
			wantState(item, want, "is in runs/")
			p.wantOwnRow(item, p.explain(id, item), o)
		}
	})
}

// noFullReads is a bucket that refuses to read whole inputs.
type noFullReads struct{ blob.Store }

func (b noFullReads) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if strings.HasPrefix(key, record.PromptsPrefix) && o.Length == 0 {
		return nil, blob.Info{}, fault.New(fault.Denied, "read %s as a whole", key)
	}
	return b.Store.Get(ctx, key, o)
}

func TestIDIsFoundWithoutReadingTheWholeInput(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 16")
		p.functions()
		p.work(setup{})
		id := p.upload("prompts/x.jsonl", append(prompts(2000),
			"{\"id\":\"id-77\",\"prompt\":\"again\"}\n"+
				"{\"id\":\"id-1000\",\"prompt\":\"again\"}\n{\"id\":\"id-77\",\"prompt\":\"and again\"}\n"...))
		p.awaitEnd(id)
		ports := p.ports
		ports.Blobs = noFullReads{ports.Blobs}
		user := api.New(ports, p.deploy, cloud.OneMachine())
		for item, want := range map[string][]uint64{"id-0": {0}, "id-1999": {1999}, "id-77": {77, 2000, 2002},
			"id-1000": {1000, 2001}, "#5": {5}, "x.jsonl:7": {6}} {
			x, err := user.Explain(t.Context(), id, item)
			must(t, err)
			var got []uint64
			for _, it := range x.Items {
				got = append(got, it.Item)
			}
			if !slices.Equal(got, want) || x.Items[0].State != diagnosis.Answered {
				t.Errorf("%s: items %d, want %d", item, got, want)
			}
		}
		if _, err := user.Explain(t.Context(), id, "unknown"); !fault.Is(err, fault.NotFound) {
			t.Errorf("for an unknown id: %v, want not found", err)
		}
	})
}
