// Package enginetest is the conformance suite of the engine port: it checks what
// every engine promises to the worker.
//
// Only tests import it. It does not judge what a model says. An engine under test
// repeats its prompt, so that answers can be told apart.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Subject is an engine under test.
type Subject struct {
	// New returns an engine that answers every request at once and repeats at
	// least the first 100 runes of its prompt. The suite closes it.
	New func(t *testing.T) engine.Engine
	// Stuck returns an engine that reports progress on a request once, then never
	// answers. The suite closes it.
	Stuck func(t *testing.T) engine.Engine
	// Model is the name that Ready must return.
	Model string
	// Faults are requests that must fail.
	Faults []Fault
}

// Fault is a request that fails, and the fault that it must have.
type Fault struct {
	Name       string
	Engine     func(t *testing.T) engine.Engine
	Request    engine.Request
	Kind       fault.Kind
	Class      fault.Class
	RetryAfter bool // the fault has the server's hint
}

// Run checks each promise as a subtest.
func Run(t *testing.T, s Subject) {
	t.Run("ready names the model", s.ready)
	t.Run("equal bodies get equal answers", s.deterministic)
	t.Run("other seeds get other answers when sampling", s.seeds)
	t.Run("text with any characters is unchanged", s.unicode)
	t.Run("a long prompt is answered", s.longPrompt)
	t.Run("64 concurrent requests get their own answers", s.parallel)
	t.Run("a request's body is not changed", s.bodyUntouched)
	t.Run("progress is reported before the answer", s.progress)
	t.Run("a canceled request ends at once", s.cancel)
	t.Run("a request after its context's end is not made", s.canceledBefore)
	t.Run("close ends answers in flight", s.closeInFlight)
	t.Run("a closed engine answers nothing", s.closed)
	for _, f := range s.Faults {
		t.Run("fault: "+f.Name, func(t *testing.T) { t.Parallel(); f.check(t) })
	}
}

// ChatRequest is a chat of one user message, with extra members such as
// `"seed":1` appended to the body.
func ChatRequest(prompt string, extra ...string) engine.Request {
	body := fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%s}]`, quote(prompt))
	return engine.Request{Endpoint: engine.Chat, Body: finish(body, extra)}
}

// CompletionRequest is a completion of the prompt, with extra members.
func CompletionRequest(prompt string, extra ...string) engine.Request {
	body := fmt.Appendf(nil, `{"model":"m","prompt":%s`, quote(prompt))
	return engine.Request{Endpoint: engine.Completion, Body: finish(body, extra)}
}

func finish(body []byte, extra []string) []byte {
	for _, e := range extra {
		body = append(append(body, ','), e...)
	}
	return append(body, '}')
}

func quote(s string) []byte {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic("a test's prompt is not UTF-8: " + err.Error())
	}
	return b
}

func open(t *testing.T, make func(t *testing.T) engine.Engine) engine.Engine {
	t.Helper()
	e := make(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

func answer(t *testing.T, e engine.Engine, r engine.Request) engine.Answer {
	t.Helper()
	a, err := e.Answer(t.Context(), r, func() {})
	if err != nil {
		t.Fatalf("answer to %.80s: %v", r.Body, err)
	}
	return a
}

func (s Subject) ready(t *testing.T) {
	t.Parallel()
	model, err := open(t, s.New).Ready(t.Context())
	if err != nil || model != s.Model {
		t.Fatalf("ready: %q, %v; want %q", model, err, s.Model)
	}
}

func (s Subject) deterministic(t *testing.T) {
	t.Parallel()
	one, two := open(t, s.New), open(t, s.New)
	for _, r := range []engine.Request{
		ChatRequest("name a colour"), CompletionRequest("name a colour"),
		ChatRequest("name a colour", `"seed":7`, `"temperature":0.8`),
	} {
		first := answer(t, one, r)
		answer(t, two, ChatRequest("something between"))
		again := answer(t, two, r)
		if again.Text != first.Text || again.FinishReason != first.FinishReason || again.Usage != first.Usage {
			t.Errorf("%s: %+v, then %+v", r.Body, first, again)
		}
		if first.FinishReason != "stop" || first.Usage.CompletionTokens == 0 || first.Usage.PromptTokens == 0 ||
			first.Model == "" {
			t.Errorf("%s: incomplete answer %+v", r.Body, first)
		}
	}
}

func (s Subject) seeds(t *testing.T) {
	t.Parallel()
	e := open(t, s.New)
	seen := map[string]string{}
	for seed := range 8 {
		r := ChatRequest("name a colour", fmt.Sprintf(`"seed":%d`, seed), `"temperature":0.8`)
		text := answer(t, e, r).Text
		if other, dup := seen[text]; dup {
			t.Errorf("%s and %s: both %q", r.Body, other, text)
		}
		seen[text] = string(r.Body)
	}
	greedy := answer(t, e, ChatRequest("name a colour", `"seed":1`, `"temperature":0`)).Text
	if other := answer(t, e, ChatRequest("name a colour", `"seed":2`, `"temperature":0`)).Text; other != greedy {
		t.Errorf("temperature 0 depends on the seed: %q, %q", greedy, other)
	}
}

func (s Subject) unicode(t *testing.T) {
	t.Parallel()
	e := open(t, s.New)
	for name, prompt := range map[string]string{
		"accents": "déjà vu, naïve, Zürich", "emoji": "👩‍👩‍👧‍👦 and 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
		"right to left":   "مرحبا שלום",
		"line separators": "a\u2028b\u2029c\u0085d", "controls": "a\x00b\x1fc\x7fd", "newlines": "a\nb\r\nc\rd",
		"sse look-alike": "x\n\ndata: [DONE]\n\nevent: y", "quotes": `"\" and \u0041 and \\`, "replacement": "\uFFFD",
		"empty": "",
	} {
		for _, r := range []engine.Request{ChatRequest(prompt), CompletionRequest(prompt)} {
			a := answer(t, e, r)
			if !strings.Contains(a.Text, prompt) || !utf8.ValidString(a.Text) {
				t.Errorf("%s, %s: %q does not hold %q", name, r.Endpoint, a.Text, prompt)
			}
		}
	}
	escaped := engine.Request{Endpoint: engine.Completion,
		Body: []byte(`{"model":"m","prompt":"a\u0000b\u2028c\ud83d\ude00d"}`)}
	if a := answer(t, e, escaped); !strings.Contains(a.Text, "a\x00b\u2028c😀d") {
		t.Errorf("escapes: %q", a.Text)
	}
}

func (s Subject) longPrompt(t *testing.T) {
	t.Parallel()
	prompt := strings.Repeat("all work and no play makes a dull boy. ", 1<<20/39)
	a := answer(t, open(t, s.New), ChatRequest(prompt))
	if !strings.Contains(a.Text, prompt[:100]) {
		t.Errorf("answer %.120q does not repeat the prompt", a.Text)
	}
}

func (s Subject) parallel(t *testing.T) {
	t.Parallel()
	e := open(t, s.New)
	var wg sync.WaitGroup
	for n := range 64 {
		wg.Go(func() {
			for k := range 4 {
				prompt := fmt.Sprintf("question <%d.%d> of many", n, k)
				a, err := e.Answer(t.Context(), ChatRequest(prompt), func() {})
				if err != nil || !strings.Contains(a.Text, prompt) {
					t.Errorf("%s: %q, %v", prompt, a.Text, err)
				}
			}
		})
	}
	wg.Wait()
}

func (s Subject) bodyUntouched(t *testing.T) {
	t.Parallel()
	r := ChatRequest("hello", `"seed":3`)
	backing := append(append([]byte{}, r.Body...), "####"...)
	answer(t, open(t, s.New), engine.Request{Endpoint: r.Endpoint, Body: backing[:len(r.Body)]})
	if want := string(r.Body) + "####"; string(backing) != want {
		t.Errorf("body became %s", backing)
	}
}

func (s Subject) progress(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	if _, err := open(t, s.New).Answer(t.Context(), ChatRequest("hello"), func() { calls.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if calls.Load() == 0 {
		t.Error("an answer came without a call of progress")
	}
}

func (s Subject) cancel(t *testing.T) {
	t.Parallel()
	why := errors.New("no token for 60 s")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := open(t, s.Stuck).Answer(ctx, ChatRequest("hello"), func() { cancel(why) })
	if !fault.Is(err, fault.Canceled) || !errors.Is(err, why) {
		t.Errorf("got %v (%v); want canceled because of %q", err, fault.KindOf(err), why)
	}
}

func (s Subject) canceledBefore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := open(t, s.New).Answer(ctx, ChatRequest("hello"), func() { t.Error("progress on a canceled request") })
	if !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v (%v)", err, fault.KindOf(err))
	}
}

func (s Subject) closeInFlight(t *testing.T) {
	t.Parallel()
	e := open(t, s.Stuck)
	started, ended := make(chan struct{}), make(chan error)
	var once sync.Once
	go func() {
		_, err := e.Answer(t.Context(), ChatRequest("hello"), func() { once.Do(func() { close(started) }) })
		ended <- err
	}()
	<-started
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if err := <-ended; !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v (%v); want unavailable", err, fault.KindOf(err))
	}
}

func (s Subject) closed(t *testing.T) {
	t.Parallel()
	e := open(t, s.New)
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if _, err := e.Answer(t.Context(), ChatRequest("hello"), func() {}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("answer: %v (%v); want unavailable", err, fault.KindOf(err))
	}
	if _, err := e.Ready(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("ready: %v (%v); want unavailable", err, fault.KindOf(err))
	}
}

func (f Fault) check(t *testing.T) {
	_, err := open(t, f.Engine).Answer(t.Context(), f.Request, func() {})
	if !fault.Is(err, f.Kind) || fault.ClassOf(err) != f.Class {
		t.Errorf("got %v: %v, class %q; want %v, class %q", err, fault.KindOf(err), fault.ClassOf(err), f.Kind, f.Class)
	}
	if (fault.RetryAfter(err) > 0) != f.RetryAfter {
		t.Errorf("retry after %v", fault.RetryAfter(err))
	}
}
