package diagnosis_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"rollout/functions/diagnosis"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

// newShown is a running run of 6 items in 3 shards: the first has a result with an answer
// and a failure, the second a checkpoint of its first item, and the third nothing.
func newShown(t *testing.T) fixture {
	t.Helper()
	f := newFixture(t)
	m, few := inputtest.Manifest(2), 2
	m.Run, m.ModelURI, m.ModelID = runA, "m", identity.Model("m", "").String()
	m.Config.Sampling = config.Sampling{N: &few}
	m.Config.Request = &config.Request{Extra: map[string]any{"top_a": 1}, Headers: map[string]string{"X-Key": "hidden"}}
	inputs := `{"id":"a","messages":[{"role":"user","content":"0"}]}` + "\n" + `{"id":"b","prompt":"1"}` + "\n" +
		`{"id":"5","prompt":"2"}` + "\n" + inputtest.Prompts(3, 3)
	m = inputtest.Plan(t, f.ports, m, inputs)
	plan := hosttest.Load[record.Plan](t, f.ports, record.PlanKey(runA))
	plan.Growing = true // an id that the plan does not have may be in the input
	f.save(record.PlanKey(runA), plan)
	answer := func(id, text string) []byte {
		it, err := dialect.Parse(dialect.Plain, []byte(`{"id":"`+id+`","prompt":"0"}`))
		if err != nil {
			t.Fatal(err)
		}
		return dialect.AppendOutput(nil, it, m.DialectModel(), dialect.Result{ID: id, GeneratedAt: noon,
			Answers: []dialect.Answer{{Text: text, FinishReason: "stop"}, {Text: "second", FinishReason: "length"}}})
	}
	failure := dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: "b", Class: fault.Timeout, Message: "too slow",
		Place: dialect.Place{Item: 1, File: "prompts/0.jsonl", Line: 2}})
	put := func(key string, b []byte) *shard.Ref {
		hosttest.Put(t, f.ports, key, string(b))
		return &shard.Ref{Key: key, Length: int64(len(b)), Digest: identity.Content(b).String()}
	}
	b, out := result.Append(nil, []result.Row{{Item: 0, Bytes: answer("a", "first")},
		{Item: 1, Class: fault.Timeout, Bytes: failure}})
	f.save(identity.ShardKey(runA, 0), shard.Doc{Schema: 1, Run: runA, Shard: 0, State: shard.Done, Attempt: 3,
		Worker: "w1", Items: 2, Result: put("work/result", b), OutputLen: out, Counts: shard.Counts{OK: 1, Failed: 1}})
	b, err := result.AppendCheckpoint(nil, []result.Row{{Item: 0, Bytes: answer("5", "third")}})
	if err != nil {
		t.Fatal(err)
	}
	f.save(identity.ShardKey(runA, 1), shard.Doc{Schema: 1, Run: runA, Shard: 1, State: shard.Pending, Attempt: 1,
		Items: 2, Checkpoint: put("work/checkpoint", b), Counts: shard.Counts{OK: 1}})
	s := run.New(runA)
	s.Phase, s.Items, s.Shards, s.NextShard, s.Complete = run.Running, 6, 3, 3, true
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 1})
	f.save(record.CoordinatorKey(runA), s)
	return f
}

func TestShowHasTheRequestAndTheAnswer(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	for name, c := range map[string]struct {
		item    string
		index   uint64
		state   diagnosis.ItemState
		prompt  string // in the request
		answers string // joined
		output  string // in its row
	}{
		"by id":             {"a", 0, diagnosis.Answered, `"content":"0"`, "first second", `"completion":"first"`},
		"by index":          {"0", 0, diagnosis.Answered, `"content":"0"`, "first second", `"completion":"first"`},
		"by a marked index": {"#0", 0, diagnosis.Answered, `"content":"0"`, "first second", `"completion":"first"`},
		"by its line": {"0.jsonl:1", 0, diagnosis.Answered, `"content":"0"`, "first second",
			`"completion":"first"`},
		"a failed one":           {"b", 1, diagnosis.Failed, `"1"`, "", `"class":"timeout"`},
		"in a checkpoint":        {"#2", 2, diagnosis.Checkpointed, `"2"`, "third second", `"completion":"third"`},
		"an index that is an id": {"#5", 5, diagnosis.Waiting, `"prompt":"5"`, "", ""},
		"one without a row":      {"3", 3, diagnosis.Waiting, `"prompt":"3"`, "", ""},
	} {
		_, shown, err := f.Show(t.Context(), runA, c.item)
		if err != nil || len(shown) != 1 {
			t.Errorf("%s: %+v, %v", name, shown, err)
			continue
		}
		got, texts := shown[0], []string{}
		for _, a := range got.Answers {
			texts = append(texts, a.Text)
		}
		if got.Item != c.index || got.State != c.state || strings.Join(texts, " ") != c.answers {
			t.Errorf("%s: item %d is %s, with the answers %q", name, got.Item, got.State, texts)
		}
		if got.Request == nil || !strings.Contains(string(got.Request.Body), c.prompt) || len(got.Request.Seeds) != 2 ||
			string(got.Request.Seeds[0]) == string(got.Request.Seeds[1]) {
			t.Errorf("%s: the request is %+v", name, got.Request)
		}
		if !strings.Contains(string(got.Output), c.output) || c.output == "" && got.Output != nil {
			t.Errorf("%s: the row is %s", name, got.Output)
		}
		b, err := json.Marshal(got)
		if err != nil || strings.Contains(string(b), "hidden") {
			t.Errorf("%s: %v, with a header in it: %s", name, err, b)
		}
	}
}

func TestShowSaysHowTheSettingsChangeTheRequest(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	_, shown, err := f.Show(t.Context(), runA, "a")
	if err != nil {
		t.Fatal(err)
	}
	if body := string(shown[0].Request.Body); !strings.Contains(body, `"top_a":1`) ||
		shown[0].Request.Endpoint != dialect.Chat {
		t.Errorf("the request is %s", body)
	}
	if s := shown[0]; s.Shard.Attempt != 3 || s.GeneratedAt == nil || !s.GeneratedAt.Equal(noon) {
		t.Errorf("the attempts are %+v, answered at %v", s.Shard, s.GeneratedAt)
	}
}

func TestShowOfAMissingItemIsNotFound(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	for _, item := range []string{"nobody", "77", "#6", "0.jsonl:99"} {
		if _, _, err := f.Show(t.Context(), runA, item); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", item, err)
		}
	}
	if _, _, err := f.Show(t.Context(), runB, "a"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

// A child with other settings asks with these, and keeps rows of its parent that were asked
// with the parent's.
func TestShowOfAChildHasTheSettingsThatTheItemWasAskedWith(t *testing.T) {
	t.Parallel()
	f := newKeeping(t)
	m := hosttest.Load[record.Manifest](t, f.ports, record.ManifestKey(runA))
	m.Dialect, m.ModelURI, m.ModelID = string(dialect.Plain), "m", identity.Model("m", "").String()
	few, many := 10, 800
	m.Config.Sampling.MaxTokens = &few
	f.save(record.ManifestKey(runA), m)
	child := m
	child.Run, child.Parent = runB, &record.Parent{Run: runA, Selection: record.Selection{Only: []string{"timeout"}}}
	child.Config.Sampling.MaxTokens, child.Original = &many, &record.Original{Sampling: m.Config.Sampling}
	f.save(record.ManifestKey(runB), child)
	row := `{"id":"a","prompt":"0","completion":"old"}` + "\n"
	hosttest.Put(t, f.ports, record.OutputKey(runA, record.CompletionsFile), row)
	in := shardtable.Inherited{Touched: true, FileEntry: shardtable.FileEntry{Outputs: uint64(len(row)), OK: 1, Failed: 1,
		Errors: uint64(len(hosttest.Object(t, f.ports, record.OutputKey(runA, record.ErrorsFile))))}}
	hosttest.Put(t, f.ports, record.InheritedKey(runB), string(in.Append(in.Append(nil))))
	for item, want := range map[string]string{"#0": `"max_tokens":10`, "#1": `"max_tokens":800`} {
		_, shown, err := f.Show(t.Context(), runB, item)
		if err != nil || len(shown) != 1 || shown[0].Request == nil ||
			!strings.Contains(string(shown[0].Request.Body), want) {
			t.Errorf("%s: %+v, %v, want %s", item, shown, err, want)
		}
	}
}

// withList gives runA, whose plan is complete then, the list with the id of item 2.
func (f fixture) withList() {
	f.t.Helper()
	plan := hosttest.Load[record.Plan](f.t, f.ports, record.PlanKey(runA))
	plan.Growing, plan.IDs = false, []record.Hashes{{From: 0, To: 1, Count: 1}}
	f.save(record.PlanKey(runA), plan)
	keys := dialect.IDKeys("5")
	var list shardtable.HashList
	list.Add(shardtable.HashID(keys[0]), shardtable.Place{Item: 2, Line: 2})
	var b bytes.Buffer
	if err := list.Write(&b); err != nil {
		f.t.Fatal(err)
	}
	hosttest.Put(f.t, f.ports, listKey, b.String())
}

var listKey = record.HashesKey(runA, record.Hashes{From: 0, To: 1}, record.HashIDs)

// A retry looks ids up in the lists of its parent, which has ended.
func TestShowFindsANumberInARetryWhoseParentsListsAreFreed(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	f.withList()
	f.delete(listKey)
	m := hosttest.Load[record.Manifest](t, f.ports, record.ManifestKey(runA))
	m.Run, m.Parent = runB, &record.Parent{Run: runA, Selection: record.Selection{Only: []string{"timeout"}}}
	f.save(record.ManifestKey(runB), m)
	plan := hosttest.Load[record.Plan](t, f.ports, record.PlanKey(runA))
	plan.Inherited = &record.Inheritance{Plan: runA}
	f.save(record.PlanKey(runB), plan)
	in := shardtable.Inherited{FileEntry: shardtable.FileEntry{}}
	hosttest.Put(t, f.ports, record.InheritedKey(runB), string(in.Append(in.Append(in.Append(nil)))))
	s := hosttest.Load[run.State](t, f.ports, record.CoordinatorKey(runA))
	s.Run = runB
	f.save(record.CoordinatorKey(runB), s)
	for item, want := range map[string]uint64{"5": 2, "4": 4} {
		_, shown, err := f.Show(t.Context(), runB, item)
		if err != nil || len(shown) != 1 || shown[0].Item != want {
			t.Errorf("%s is not item %d: %+v, %v", item, want, shown, err)
		}
	}
}

// A number stays an id where its line can't be read any more: the run's files have its row.
func TestShowFindsANumberInTheFilesOfARunWhoseInputIsGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string][]string{
		"lists kept": {"prompts/0.jsonl"}, "lists freed": {"prompts/0.jsonl", listKey},
	} {
		f := newShown(t)
		f.withList()
		s := hosttest.Load[run.State](t, f.ports, record.CoordinatorKey(runA))
		s.Phase = run.CompletedWithErrors
		f.save(record.CoordinatorKey(runA), s)
		hosttest.Put(t, f.ports, record.OutputKey(runA, record.CompletionsFile), `{"id":"5","completion":"third"}`+"\n")
		hosttest.Put(t, f.ports, record.OutputKey(runA, record.ErrorsFile), "")
		f.delete(gone...)
		_, shown, err := f.Show(t.Context(), runA, "5")
		if err != nil || len(shown) != 1 || !strings.Contains(string(shown[0].Output), "third") {
			t.Errorf("%s: %+v, %v", name, shown, err)
		}
	}
}
