package mock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/mock"
	"rollout/shared/fault"
)

func TestMockIsEngine(t *testing.T) {
	t.Parallel()
	failing := func(err *fault.Error) func(t *testing.T) engine.Engine {
		return func(*testing.T) engine.Engine {
			return mock.New(mock.Config{Fault: func(engine.Request) error { return err }})
		}
	}
	plain := func(*testing.T) engine.Engine { return mock.New(mock.Config{}) }
	enginetest.Run(t, enginetest.Subject{
		New:   plain,
		Stuck: func(*testing.T) engine.Engine { return mock.New(mock.Config{Delay: 24 * time.Hour}) },
		Model: "mock",
		Faults: []enginetest.Fault{
			{Name: "too long", Engine: failing(&fault.Error{Kind: fault.Invalid, Class: fault.TooLong}),
				Request: enginetest.ChatRequest("x"), Kind: fault.Invalid, Class: fault.TooLong},
			{Name: "overloaded", Engine: failing(&fault.Error{Kind: fault.Throttled, RetryAfter: time.Second}),
				Request: enginetest.ChatRequest("x"), Kind: fault.Throttled, RetryAfter: true},
			{Name: "no prompt", Engine: plain,
				Request: engine.Request{Endpoint: engine.Completion, Body: []byte(`{"model":"m"}`)},
				Kind:    fault.Invalid, Class: fault.Refused},
			{Name: "not an object", Engine: plain, Request: engine.Request{Endpoint: engine.Chat, Body: []byte(`[1]`)},
				Kind: fault.Invalid, Class: fault.Refused},
			{Name: "cut off", Engine: plain,
				Request: engine.Request{Endpoint: engine.Chat, Body: []byte(`{"messages":[{"role":"user"`)},
				Kind:    fault.Invalid, Class: fault.Refused},
		},
	})
}

func TestAnswerIsPrefixAndPrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		endpoint engine.Endpoint
		body     string
		want     string
	}{
		{"prompt", engine.Completion, `{"prompt":"hi there"}`, "MOCK:hi there"},
		{"max_tokens is ignored", engine.Completion, `{"max_tokens":1,"prompt":"hi there you"}`, "MOCK:hi there you"},
		{"last user message", engine.Chat,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"content":"c","role":"user"},` +
				`{"role":"system","content":"d"}]}`, "MOCK:c"},
		{"text parts", engine.Chat,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},` +
				`{"type":"text","text":"b"}]}]}`, "MOCK:ab"},
		{"token ids", engine.Completion, `{"prompt":[1,2]}`, "MOCK:[1,2]"},
		{"list of prompts", engine.Completion, `{"prompt":["a","b"]}`, "MOCK:ab"},
		{"seed without temperature", engine.Completion, `{"prompt":"a","seed":1}`, "MOCK:a"},
		{"temperature without seed", engine.Completion, `{"prompt":"a","temperature":1}`, "MOCK:a"},
		{"seed and temperature", engine.Completion, `{"prompt":"a","seed":1,"temperature":1}`, "MOCK:a #78f73c19"},
	} {
		a, err := mock.New(mock.Config{}).Answer(t.Context(), engine.Request{Endpoint: c.endpoint, Body: []byte(c.body)},
			func() {})
		if err != nil || a.Text != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, a.Text, err, c.want)
		}
	}
}

func TestAnswerTakesDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		e := mock.New(mock.Config{Delay: 50 * time.Millisecond})
		if _, err := e.Answer(t.Context(), enginetest.ChatRequest("x"), func() {}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("took %v, want 50ms", took)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	prompt := strings.Repeat("all work and no play ", 50)
	for name, r := range map[string]engine.Request{
		"greedy 1 KB":  enginetest.ChatRequest(prompt, `"max_tokens":100`, `"temperature":0`, `"seed":1`),
		"sampled 1 KB": enginetest.ChatRequest(prompt, `"max_tokens":100`, `"temperature":0.7`, `"seed":1`),
	} {
		b.Run(name, func(b *testing.B) {
			e := mock.New(mock.Config{})
			b.SetBytes(int64(len(r.Body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Answer(b.Context(), r, func() {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
