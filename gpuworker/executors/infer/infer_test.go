package infer_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// scripted is an engine that does, at each ask of a prompt, what the prompt's
// script says next, and then answers as the mock does.
type scripted struct {
	script map[string][]step // by what the body contains
	ready  func() error

	mu    sync.Mutex
	asks  []ask
	taken map[string]int
}

type step func(ctx context.Context, progress func()) error

type ask struct {
	at   time.Time
	body string
}

func (s *scripted) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	s.mu.Lock()
	s.asks = append(s.asks, ask{time.Now(), string(r.Body)})
	var next step
	for key, steps := range s.script {
		if n := s.taken[key]; strings.Contains(string(r.Body), key) && n < len(steps) {
			next, s.taken[key] = steps[n], n+1
		}
	}
	s.mu.Unlock()
	if next != nil {
		if err := next(ctx, progress); err != nil {
			return engine.Answer{}, err
		}
	}
	return mock.New(mock.Config{}).Answer(ctx, r, progress)
}

func (s *scripted) Ready(context.Context) (string, error) {
	if s.ready == nil {
		return "mock", nil
	}
	return "mock", s.ready()
}

func (s *scripted) Close() error { return nil }

// fails is a step that ends in a fault.
func fails(k fault.Kind, c fault.Class) step {
	return func(context.Context, func()) error {
		return &fault.Error{Kind: k, Class: c, Op: "injected"}
	}
}

// hangs is a step that shows progress so often, and then none, and no answer.
func hangs(progress int, every time.Duration) step {
	return func(ctx context.Context, tell func()) error {
		for range progress {
			select {
			case <-time.After(every):
				tell()
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
			}
		}
		<-ctx.Done()
		return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
	}
}

// slow is a step that shows progress so often, and then answers.
func slow(progress int, every time.Duration) step {
	return func(ctx context.Context, tell func()) error {
		for range progress {
			select {
			case <-time.After(every):
				tell()
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, ctx.Err(), "answer")
			}
		}
		return nil
	}
}

func times(n int, s step) []step { return slices.Repeat([]step{s}, n) }

// fixture is a world with one planned run of one shard.
type fixture struct {
	host.Ports
	t      *testing.T
	engine *scripted
	worker *worker.Worker
	told   []infer.Item
}

const run = inputtest.RunID

func newFixture(t *testing.T, m record.Manifest, file string, script map[string][]step) *fixture {
	t.Helper()
	d := &fixture{t: t, engine: &scripted{script: script, taken: map[string]int{}}, Ports: hosttest.New()}
	inputtest.Plan(t, d.Ports, m, file)
	return d
}

// work offers the shard to a worker and lets time pass.
func (d *fixture) work(wait time.Duration, edit ...func(*infer.Config)) {
	d.t.Helper()
	var mu sync.Mutex
	cfg := infer.Config{Engine: d.engine, Clock: d.Clock, Log: d.Log, ProgressTimeout: 30 * time.Second, MaxOutage: 10 * time.Second,
		OnItem: func(it infer.Item) { mu.Lock(); d.told = append(d.told, it); mu.Unlock() }}
	for _, f := range edit {
		f(&cfg)
	}
	d.worker = worker.New(d.Ports, worker.Config{ID: identity.Content([]byte(time.Now().String())).String(), Pool: "default",
		Timings: host.Timings(config.DefaultDeployment().Health), InFlight: 8, CheckpointInterval: time.Minute, Drain: 4 * time.Second, Grace: time.Second},
		input.NewIndex(d.Blobs, d.Docs), infer.New(cfg))
	if err := d.Send(d.t.Context(), host.WorkQueue("default"), events.Work{Run: string(run), Pool: "default"}); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.worker.Run(ctx) }()
	d.t.Cleanup(func() { cancel(); <-done })
	pass(wait)
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (d *fixture) shard() shard.Doc {
	return hosttest.Load[shard.Doc](d.t, d.Ports, identity.ShardKey(run, 0))
}

// row is what the tests look at in a row.
type row struct {
	ID         string      `json:"id"`
	CustomID   string      `json:"custom_id"`
	Completion any         `json:"completion"`
	All        []any       `json:"completions"`
	Class      fault.Class `json:"class"`
	Line       int         `json:"line"`
	Message    string      `json:"error"`
}

// rows are the committed result's, outputs first.
func (d *fixture) rows() []row {
	d.t.Helper()
	doc := d.shard()
	if doc.Result == nil {
		d.t.Fatalf("there is no result: %+v", doc)
	}
	var out []row
	dec := json.NewDecoder(strings.NewReader(hosttest.Object(d.t, d.Ports, doc.Result.Key)))
	for dec.More() {
		var r row
		if err := dec.Decode(&r); err != nil {
			d.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestFaults says what an engine's faults do to the one item "x".
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script []step
		class  fault.Class // of the item's error row; "" for an output row
		asks   int
		least  time.Duration // from the first ask to the last
	}{
		"no fault":                                   {nil, "", 1, 0},
		"the request's own fault":                    {times(9, fails(fault.Invalid, fault.TooLong)), fault.TooLong, 1, 0},
		"a fault without a class":                    {times(9, fails(fault.Invalid, "")), fault.Refused, 1, 0},
		"overload is never charged":                  {times(30, fails(fault.Throttled, "")), "", 31, time.Minute},
		"a nonsense answer, once":                    {times(1, fails(fault.Corrupt, fault.Engine)), "", 2, 0},
		"nonsense answers up to the limit":           {times(9, fails(fault.Corrupt, fault.Engine)), fault.Engine, 3, 0},
		"an unknown fault is charged":                {times(9, fails(fault.Internal, "")), fault.Engine, 3, 0},
		"a broken connection to a living engine":     {times(7, fails(fault.Unavailable, "")), "", 8, 0},
		"a connection that always breaks is charged": {times(20, fails(fault.Unavailable, "")), fault.Engine, 8, 0},
		"silence":                                      {times(9, hangs(0, 0)), fault.Timeout, 3, time.Minute},
		"silence after some tokens":                    {times(9, hangs(3, 20*time.Second)), fault.Timeout, 3, 3 * time.Minute},
		"progress keeps a long request alive":          {times(1, slow(20, 20*time.Second)), "", 1, 0},
		"a mixture, charged for what is charged alone": {[]step{fails(fault.Corrupt, fault.Engine), fails(fault.Throttled, ""), fails(fault.Unavailable, ""), fails(fault.Corrupt, fault.Engine)}, "", 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, inputtest.Manifest(0), `{"id":"own","prompt":"x"}`+"\n", map[string][]step{`"x"`: c.script})
				d.work(20 * time.Minute)
				got := d.rows()
				if len(got) != 1 || got[0].ID != "own" || got[0].Class != c.class || (got[0].Completion != nil) != (c.class == "") {
					t.Errorf("rows %+v, want one of class %q", got, c.class)
				}
				asks := d.engine.asks
				if len(asks) != c.asks || asks[len(asks)-1].at.Sub(asks[0].at) < c.least {
					t.Errorf("%d asks in %s, want %d in %s or more", len(asks), asks[len(asks)-1].at.Sub(asks[0].at), c.asks, c.least)
				}
				if want := []infer.Item{{Run: run, Item: 0, ID: "own", Class: c.class}}; !slices.Equal(d.told, want) {
					t.Errorf("told %v, want %v", d.told, want)
				}
			})
		})
	}
}

func TestTheEnginesOwnHintIsTheLeastWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := func(context.Context, func()) error {
			return &fault.Error{Kind: fault.Throttled, RetryAfter: 7 * time.Second}
		}
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 8), map[string][]step{"prompt": times(8, busy)})
		d.work(time.Minute)
		first := d.engine.asks[0].at
		for _, a := range d.engine.asks[8:] {
			if wait := a.at.Sub(first); wait < 7*time.Second || wait > 8*time.Second {
				t.Errorf("asked again after %s, want 7 s", wait)
			}
		}
		if n := len(d.rows()); n != 8 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestAnEngineThatRefusesEverythingHandsTheShardBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hint  time.Duration
		prone string // prompts that are refused
		back  bool
	}{
		"everything":               {0, "prompt", true},
		"everything, for an hour":  {time.Hour, "prompt", true},
		"some, and answers others": {0, `"0"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				busy := func(context.Context, func()) error { return &fault.Error{Kind: fault.Throttled, RetryAfter: c.hint} }
				steady := slow(1, 4*time.Minute) // answers, one after the other
				d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 4), map[string][]step{c.prone: times(1000, busy),
					`"1"`: times(1, steady), `"2"`: times(1, steady), `"3"`: times(1, steady)})
				d.work(4*time.Minute + 50*time.Second)
				if doc := d.shard(); doc.State != shard.Running || doc.Counts.Failed != 0 {
					t.Fatalf("before its patience is over the shard is %+v", doc)
				}
				pass(20 * time.Second)
				if doc := d.shard(); (doc.State == shard.Pending) != c.back || doc.Counts.Failed != 0 {
					t.Errorf("then it is %+v", doc)
				}
			})
		})
	}
}

func TestAHangIsTheItemsOwnUnlessTheServerAnswersNobody(t *testing.T) {
	t.Parallel()
	for server, class := range map[bool]fault.Class{true: "", false: fault.Timeout} {
		synctest.Test(t, func(t *testing.T) {
			silent := func(ctx context.Context, _ func()) error {
				<-ctx.Done()
				return fault.WithKind(fault.Canceled, &engine.HangError{Err: ctx.Err(), ServerAtFault: func(ctx context.Context) bool {
					return ctx.Err() == nil && server
				}}, "answer")
			}
			d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), map[string][]step{"prompt": times(3, silent)})
			d.work(time.Hour)
			if got := d.rows(); len(got) != 1 || got[0].Class != class {
				t.Errorf("the server at fault: %v; rows %+v", server, got)
			}
		})
	}
}

func TestALongestRequestIsAFailureEvenWithProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), map[string][]step{"prompt": times(9, slow(1000, time.Second))})
		d.work(time.Hour, func(c *infer.Config) { c.RequestTimeout = time.Minute })
		got := d.rows()
		if len(got) != 1 || got[0].Class != fault.Timeout || len(d.engine.asks) != 3 {
			t.Errorf("rows %+v after %d asks", got, len(d.engine.asks))
		}
	})
}

func TestAnEngineThatStaysAwayCostsNobodyAndHandsTheShardBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 2), nil)
		away := fault.New(fault.Unavailable, "connection refused")
		d.engine.script = map[string][]step{`"1"`: {func(context.Context, func()) error {
			d.engine.ready = func() error { return away }
			return away
		}}}
		d.work(5 * time.Second)
		if doc := d.shard(); doc.State != shard.Running {
			t.Fatalf("before its patience is over the shard is %+v", doc)
		}
		pass(20 * time.Second)
		doc := d.shard()
		if doc.State != shard.Pending || doc.Counts.OK != 1 || doc.Counts.Failed != 0 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

func TestAnEngineThatComesBackInTimeIsAskedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), map[string][]step{"prompt": times(1, fails(fault.Unavailable, ""))})
		begun := time.Now()
		d.engine.ready = func() error {
			if since := time.Since(begun); since > 0 && since < 8*time.Second {
				return fault.New(fault.Unavailable, "it restarts")
			}
			return nil
		}
		d.work(30 * time.Second)
		if doc := d.shard(); doc.State != shard.Done || doc.Attempt != 1 || doc.Counts.OK != 1 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

func TestARefusedKeyHandsTheShardBackAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 5), map[string][]step{"prompt": times(99, fails(fault.Denied, ""))})
		d.work(time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.Failed != 0 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

func TestEveryErrorRowBearsTheItemsOwnID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := []string{
			`{"custom_id":"other-model","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt","messages":[{"role":"user","content":"a"}]}}`,
			`{"custom_id":"no-body","method":"POST","url":"/v1/chat/completions"}`,
			`{"custom_id":"refused","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"no"}]}}`,
			`{"custom_id":"broken`,
			`{"custom_id":"good","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"yes"}]}}`,
		}
		m := inputtest.Manifest(4)
		m.Dialect = "openai"
		d := newFixture(t, m, strings.Join(lines, "\n")+"\n", map[string][]step{`"no"`: {fails(fault.Invalid, fault.Refused)}})
		d.work(time.Minute)
		want := []row{{CustomID: "other-model", Class: fault.Refused, Line: 1}, {CustomID: "no-body", Class: fault.InvalidLine, Line: 2},
			{CustomID: "refused", Class: fault.Refused, Line: 3}, {Class: fault.InvalidLine, Line: 4}}
		text := hosttest.Object(t, d.Ports, d.shard().Result.Key)
		for i, l := range strings.Split(strings.TrimSpace(text), "\n") {
			w := want[i]
			if !strings.Contains(l, string(w.Class)) || w.CustomID != "" && !strings.Contains(l, `"`+w.CustomID+`"`) {
				t.Errorf("row %d is %s, want %+v", i, l, w)
			}
		}
	})
}

func TestALineThatIsTooLongIsItsOwnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), `{"prompt":"`+strings.Repeat("x", 16<<20)+`"}`+"\n", nil)
		d.work(time.Minute)
		got := d.rows()
		if len(got) != 1 || got[0].Class != fault.InvalidLine || !strings.Contains(got[0].Message, "16777230 bytes") {
			t.Errorf("rows %+v", got)
		}
		if len(d.engine.asks) != 0 {
			t.Error("the engine was asked")
		}
	})
}

func TestADuplicateIsNotAskedAndNamesTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), `{"id":"a","prompt":"1"}`+"\n\n"+`{"id":"a","prompt":"2"}`+"\n", nil)
		e := record.IndexEntry{Shards: 1, Items: 2, Lines: 3, Duplicates: 1}
		inputtest.Repeats(t, d.Ports, 0, record.HashIDs, shardtable.Repeat{Item: 1})
		hosttest.Put(t, d.Ports, record.IndexKey(run, 0), string(record.Encode(e)))
		d.work(time.Minute)
		got := d.rows()
		if len(got) != 2 || got[1].ID != "a" || got[1].Class != fault.DuplicateID || got[1].Line != 3 || !strings.Contains(got[1].Message, "line 1 of prompts/0.jsonl") {
			t.Errorf("rows %+v", got)
		}
		if len(d.engine.asks) != 1 {
			t.Errorf("%d asks", len(d.engine.asks))
		}
	})
}

// I10: another worker, another day: the same request bodies.
func TestRequestBodiesAreAFunctionOfTheInput(t *testing.T) {
	t.Parallel()
	bodies := func() (out []string) {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t, manyDecodes(3), inputtest.Prompts(0, 4), nil)
			d.work(time.Minute)
			for _, a := range d.engine.asks {
				out = append(out, a.body)
			}
		})
		slices.Sort(out)
		return out
	}
	one, two := bodies(), bodies()
	if !slices.Equal(one, two) {
		t.Errorf("asked %q, then %q", one, two)
	}
	if n := len(slices.Compact(one)); n != 12 {
		t.Errorf("%d different requests for 4 items with 3 decodes each: every decode has a seed of its own", n)
	}
}

func manyDecodes(n int) record.Manifest {
	m := inputtest.Manifest(0)
	m.Config.Sampling.N = &n
	return m
}

func TestAnItemWithManyDecodesIsAnsweredWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, manyDecodes(3), inputtest.Prompts(0, 1), map[string][]step{"prompt": {nil, nil, hangs(0, 0)}})
		d.work(time.Second)
		d.worker.Drain("go")
		pass(10 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.OK != 0 || doc.Checkpoint != nil {
			t.Fatalf("two of three answers made a row: %+v", doc)
		}
		d.work(time.Second)
		if n := len(d.engine.asks); n != 6 {
			t.Errorf("%d asks, want all three again", n)
		}
		got := d.rows()
		if len(got) != 1 || len(got[0].All) != 3 {
			t.Errorf("rows %+v", got)
		}
	})
}

func TestARunOfAnotherModelIsNotAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 2), nil)
		d.work(10*time.Second, func(c *infer.Config) { c.Model = identity.Model("mock", "another revision") })
		if doc := d.shard(); len(d.engine.asks) != 0 || doc.Result != nil {
			t.Errorf("%d asks, %+v", len(d.engine.asks), doc)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 2), nil)
		d.work(10*time.Second, func(c *infer.Config) { c.Model = identity.Model("mock", "") })
		if n := len(d.rows()); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}
