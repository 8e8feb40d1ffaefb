package infer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/input/inputtest"
)

// cut returns a step that fails as a whole answer does that a proxy cut off.
func cut(after time.Duration) step {
	return func(context.Context, func()) error {
		time.Sleep(after)
		err := fault.WithKind(fault.Unavailable, errors.New("EOF"), "POST")
		return &engine.WholeError{Err: &engine.PartialUsage{Err: err,
			Usage: engine.Usage{CompletionTokens: 50, Unknown: true}}}
	}
}

// silentWhole returns a step that is silent until it is cancelled, on a server that
// works: it has lost the request, or the counters do not show the work on it.
func silentWhole() step {
	return func(ctx context.Context, _ func()) error {
		<-ctx.Done()
		hang := &engine.HangError{Err: errors.New("silent"), Whole: true,
			ServerAtFault: func(context.Context) bool { return false }}
		err := fault.WithKind(fault.Canceled, hang, "POST")
		return &engine.PartialUsage{Usage: engine.Usage{CompletionTokens: 20, Unknown: true}, Err: err}
	}
}

// A whole answer that was cut off, or came to a stop on a server that works, is asked
// for as a stream, which charges the item only for what the stream meets.
func TestWholeAnswersThatFailAreStreamedAndNotCharged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps  []step
		class  fault.Class
		wasted int64 // all of it estimated
	}{
		"cut off":                      {[]step{cut(20 * time.Second)}, "", 50},
		"silent":                       {[]step{silentWhole()}, "", 20},
		"silent, then a silent stream": {[]step{silentWhole(), hangs(0, 0)}, fault.Timeout, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				m.Config.Limits.Failures = 1 // one charged failure fails the item
				d := newFixture(t, m, inputtest.Prompts(0, 2), map[string][]step{`"1"`: c.steps})
				d.work(10 * time.Minute)
				got, rows := d.shard().Counts, d.rows()
				if len(rows) != 2 || rows[1].Class != c.class {
					t.Errorf("rows %+v, want the class %q", rows, c.class)
				}
				if got.WastedTokens != c.wasted || got.WastedEstimated != c.wasted {
					t.Errorf("%+v, want %d wasted, all estimated", got, c.wasted)
				}
				var streamed []bool
				for _, r := range d.engine.requests {
					if strings.Contains(r.body, `"1"`) {
						streamed = append(streamed, r.streamed)
					}
				}
				if want := []bool{false, true}; fmt.Sprint(streamed) != fmt.Sprint(want) {
					t.Errorf("the requests of the item are streams: %v, want %v", streamed, want)
				}
			})
		})
	}
}

func TestEngineIsToldTheLongestAnswer(t *testing.T) {
	t.Parallel()
	chat := func(more string) string {
		return `{"messages":[{"role":"user","content":"x"}]` + more + "}\n"
	}
	const shape = `,"response_format":{"type":"json_object"}`
	for name, c := range map[string]struct {
		line      string
		maxTokens int64
		streamed  bool
	}{
		"of the row":                    {chat(`,"max_tokens":7`), 7, false},
		"none":                          {chat(""), 0, false},
		"of a raw prompt":               {`{"prompt":"x"}` + "\n", 1024, false},
		"a short answer of a shape":     {chat(`,"max_tokens":1024` + shape), 1024, false},
		"a long answer of a shape":      {chat(`,"max_tokens":1025` + shape), 1025, true},
		"a long answer without a shape": {chat(`,"max_tokens":1025`), 1025, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				m.PromptMaxTokens = 1024
				d := newFixture(t, m, c.line, nil)
				d.work(time.Minute)
				if len(d.engine.requests) != 1 {
					t.Fatalf("%d requests", len(d.engine.requests))
				}
				if r := d.engine.requests[0]; r.maxTokens != c.maxTokens || r.streamed != c.streamed ||
					r.model != "mock" {
					t.Errorf("max_tokens %d, streamed %v, model %q", r.maxTokens, r.streamed, r.model)
				}
			})
		})
	}
}

// A model that answered white space may do so again: a stream is cancelled as soon as it
// does.
func TestC23WhitespaceIsAskedAgainAsAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), `{"prompt":"x"}`+"\n", map[string][]step{`"x"`: {whitespace(1, 2)}})
		d.work(time.Minute)
		if r := d.engine.requests; len(r) != 2 || r[0].streamed || !r[1].streamed {
			t.Errorf("%+v", r)
		}
	})
}
