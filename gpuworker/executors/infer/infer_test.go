package infer_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/executors/infer"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

func TestErrorRowsHaveItemsOwnID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const post = `,"method":"POST","url":"/v1/chat/completions",`
		lines := []string{
			`{"custom_id":"other-model"` + post + `"body":{"model":"gpt","messages":[{"role":"user","content":"a"}]}}`,
			`{"custom_id":"no-body","method":"POST","url":"/v1/chat/completions"}`,
			`{"custom_id":"refused"` + post + `"body":{"messages":[{"role":"user","content":"no"}]}}`,
			`{"custom_id":"broken`,
			`{"custom_id":"good"` + post + `"body":{"messages":[{"role":"user","content":"yes"}]}}`,
		}
		m := inputtest.Manifest(4)
		m.Dialect = "openai"
		script := map[string][]step{`"no"`: {fails(fault.Invalid, fault.Refused)}}
		d := newFixture(t, m, strings.Join(lines, "\n")+"\n", script)
		d.work(time.Minute)
		want := []row{
			{CustomID: "other-model", Class: fault.Refused, Line: 1},
			{CustomID: "no-body", Class: fault.InvalidLine, Line: 2},
			{CustomID: "refused", Class: fault.Refused, Line: 3},
			{Class: fault.InvalidLine, Line: 4},
		}
		text := hosttest.Object(t, d.Ports, d.shard().Result.Key)
		for i, l := range strings.Split(strings.TrimSpace(text), "\n") {
			w := want[i]
			if !strings.Contains(l, string(w.Class)) || w.CustomID != "" && !strings.Contains(l, `"`+w.CustomID+`"`) {
				t.Errorf("row %d is %s, want %+v", i, l, w)
			}
		}
	})
}

// A server deserializes tensors: no row may bring some, unless the deployment says so.
func TestTensorsOfRowsReachTheServerOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	const line = `{"id":"a","messages":[{"role":"user","content":[{"type":"image_embeds","image_embeds":"gASV"}]}]}` + "\n"
	for _, allowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t, inputtest.Manifest(0), line, nil)
			d.work(time.Minute, func(c *infer.Config) { c.Tensors = allowed })
			if got := d.rows(); len(got) != 1 || (got[0].Class == fault.Refused) == allowed {
				t.Errorf("allowed %v: rows %+v", allowed, got)
			}
			if n := len(d.engine.requests); (n > 0) != allowed {
				t.Errorf("allowed %v: %d requests", allowed, n)
			}
		})
	}
}

func TestTooLongLineGetsErrorRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), `{"id":"long","prompt":"`+strings.Repeat("x", 16<<20)+`"}`+"\n", nil)
		d.work(time.Minute)
		got := d.rows()
		if len(got) != 1 || got[0].Class != fault.InvalidLine || !strings.Contains(got[0].Message, "16777242 bytes") ||
			got[0].ID != "long" {
			t.Errorf("rows %+v", got)
		}
		if len(d.engine.requests) != 0 {
			t.Error("the engine was asked")
		}
	})
}

func TestDuplicateIsNotAskedAndErrorNamesFirstLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := `{"id":"a","prompt":"1"}` + "\n\n" + `{"id":"a","prompt":"2"}` + "\n"
		d := newFixture(t, inputtest.Manifest(0), file, nil)
		e := record.IndexEntry{Shards: 1, Items: 2, Lines: 3, Duplicates: 1}
		inputtest.Repeats(t, d.Ports, 0, record.HashIDs, shardtable.Repeat{Item: 1})
		hosttest.Put(t, d.Ports, record.IndexKey(run, 0), string(record.Encode(e)))
		d.work(time.Minute)
		got := d.rows()
		if len(got) != 2 || got[1].ID != "a" || got[1].Class != fault.DuplicateID || got[1].Line != 3 ||
			!strings.Contains(got[1].Message, "line 1 of prompts/0.jsonl") {
			t.Errorf("rows %+v", got)
		}
		if len(d.engine.requests) != 1 {
			t.Errorf("%d requests, want 1", len(d.engine.requests))
		}
	})
}

// Two workers at different times send the same request bodies.
func TestI10RequestBodiesAreFunctionOfInput(t *testing.T) {
	t.Parallel()
	bodies := func() (out []string) {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t, manyDecodes(3), inputtest.Prompts(0, 4), nil)
			d.work(time.Minute)
			for _, a := range d.engine.requests {
				out = append(out, a.body)
			}
		})
		slices.Sort(out)
		return out
	}
	one, two := bodies(), bodies()
	if !slices.Equal(one, two) {
		t.Errorf("the request bodies are %q, then %q", one, two)
	}
	if n := len(slices.Compact(one)); n != 12 {
		t.Errorf("%d different requests for 4 items with 3 decodes each, want 12: each decode has its own seed", n)
	}
}

func manyDecodes(n int) record.Manifest {
	m := inputtest.Manifest(0)
	m.Config.Sampling.N = &n
	return m
}

func TestItemWithManyDecodesIsAnsweredWhollyOrNotAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := map[string][]step{"prompt": {nil, nil, hangs(0, 0)}}
		d := newFixture(t, manyDecodes(3), inputtest.Prompts(0, 1), script)
		d.work(time.Second)
		d.worker.Drain("test")
		advance(10 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.OK != 0 || doc.Checkpoint != nil {
			t.Fatalf("two of three answers made a row: %+v", doc)
		}
		d.work(time.Second)
		if n := len(d.engine.requests); n != 6 {
			t.Errorf("%d requests, want 6: all three again", n)
		}
		got := d.rows()
		if len(got) != 1 || len(got[0].All) != 3 {
			t.Errorf("rows %+v", got)
		}
	})
}

func TestRunOfAnotherModelIsNotAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 2), nil)
		d.work(10*time.Second, func(c *infer.Config) { c.Model = identity.Model("mock", "another revision") })
		if doc := d.shard(); len(d.engine.requests) != 0 || doc.Result != nil {
			t.Errorf("%d requests, %+v", len(d.engine.requests), doc)
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
