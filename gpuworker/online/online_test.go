package online_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/online"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// slot is a slot that a drain has cut off, or not.
type slot struct {
	ctx         context.Context
	cut, unused bool
}

func (s *slot) Context() context.Context { return s.ctx }
func (s *slot) CutOff() bool             { return s.cut }
func (s *slot) Report(ratelimit.Report)  {}
func (s *slot) Unused()                  { s.unused = true }

// serve returns what the target answers to a request for a stream.
func serve(t *testing.T, target online.Target, s *slot) *http.Response {
	t.Helper()
	s.ctx = t.Context()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(s.ctx, http.MethodPost, "/v1/chat/completions", nil)
	target.Serve(w, online.Request{HTTP: r, Path: "chat/completions", Slot: s,
		Request: onlinewire.Request{Body: []byte(`{}`), Model: "m", Stream: true}})
	return w.Result()
}

// servers are inference servers that answer with the function.
type servers func(ctx context.Context) (engine.RawAnswer, error)

func (f servers) Pass(ctx context.Context, _ engine.RawRequest) (engine.RawAnswer, error) {
	return f(ctx)
}
func (servers) Silent(string, []byte) {}

// body is a body that ends, after its text, with the error that the function returns.
type body struct {
	io.Reader
	end func() error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.end()
	}
	return n, err
}

func (b *body) Close() error { return nil }

// answers returns servers that answer with the status, and a body with that end.
func answers(status int, end func(ctx context.Context) error) servers {
	return func(ctx context.Context) (engine.RawAnswer, error) {
		return engine.RawAnswer{Status: status, Header: http.Header{}, Server: "s",
			Body: &body{strings.NewReader("data: 1"), func() error { return end(ctx) }}}, nil
	}
}

// fails returns servers that answer nothing.
func fails(err error) servers {
	return func(context.Context) (engine.RawAnswer, error) { return engine.RawAnswer{}, err }
}

// nothing answers nothing until the request ends.
func nothing(ctx context.Context) (engine.RawAnswer, error) { return engine.RawAnswer{}, silent(ctx) }

func silent(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func broken(context.Context) error     { return errors.New("reset") }
func complete(context.Context) error   { return io.EOF }

// What a request meets decides whether another worker may get it: never if its server may
// have died of it.
func TestWhatARequestMeetsIsSaidToTheDoor(t *testing.T) {
	t.Parallel()
	crash := &fault.Error{Kind: fault.Unavailable, Err: &engine.CrashError{}}
	of := func(received bool) error {
		return fault.WithKind(fault.Unavailable, &engine.ServerError{Received: received, Err: errors.New("reset")}, "ask")
	}
	for name, c := range map[string]struct {
		servers servers
		cut     bool // by a drain
		quiet   bool // servers may be silent for a moment alone
		status  int
		outcome string
		broken  string // is in the trailer
	}{
		"it is complete":          {answers(200, complete), false, false, 200, "", ""},
		"an error of the server":  {answers(500, complete), false, false, 500, "", ""},
		"the key is refused":      {answers(401, complete), false, false, 502, onlinewire.Failed, ""},
		"the key is not enough":   {answers(403, complete), false, false, 502, onlinewire.Failed, ""},
		"nothing comes":           {nothing, false, true, 504, onlinewire.Failed, ""},
		"the server died":         {fails(crash), false, false, 502, onlinewire.Failed, ""},
		"the server had it":       {fails(of(true)), false, false, 502, onlinewire.Failed, ""},
		"no server had it":        {fails(of(false)), false, false, 503, onlinewire.Elsewhere, ""},
		"a drain, before":         {fails(of(true)), true, false, 503, onlinewire.Elsewhere, ""},
		"a drain, in the middle":  {answers(200, broken), true, false, 200, "", onlinewire.Drained},
		"silence, in the middle":  {answers(200, silent), false, true, 200, "", "sent nothing"},
		"a break, in the middle":  {answers(200, broken), false, false, 200, "", "connection"},
		"a drain, after the end":  {answers(200, complete), true, false, 200, "", ""},
		"no room, so it may wait": {answers(429, complete), false, false, 429, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &slot{cut: c.cut}
			silence := time.Hour
			if c.quiet {
				silence = time.Millisecond
			}
			resp := serve(t, online.Pass{Servers: c.servers, Silence: silence, Whole: time.Hour}, s)
			defer resp.Body.Close()
			why := resp.Trailer.Get(onlinewire.Broken)
			if resp.StatusCode != c.status || resp.Header.Get(onlinewire.Outcome) != c.outcome ||
				!strings.Contains(why, c.broken) || (why == "") != (c.broken == "") {
				t.Errorf("the answer is %d %q, broken: %q", resp.StatusCode, resp.Header.Get(onlinewire.Outcome), why)
			}
			if want := name == "no server had it"; s.unused != want {
				t.Errorf("unused is %v, want %v", s.unused, want)
			}
		})
	}
}

// An answer of a server in this process that a drain cuts off does not pass for a complete one.
func TestDrainCutsOffAnAnswerOfTheBuiltInModel(t *testing.T) {
	t.Parallel()
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
	}
	write := func(w http.ResponseWriter, pieces ...string) {
		for _, p := range pieces {
			_, _ = io.WriteString(w, p) // a recorder takes everything
		}
	}
	for name, c := range map[string]struct {
		answer  func(w http.ResponseWriter, drain func())
		status  int
		outcome string
		broken  string
	}{
		"in the middle": {func(w http.ResponseWriter, drain func()) {
			begin(w)
			drain()
			write(w, "data: 1\n\n")
		}, 200, "", onlinewire.Drained},
		"at its end": {func(w http.ResponseWriter, drain func()) {
			begin(w)
			write(w, "data: 1\n\n", "data: [DO", "NE]\n\n")
			drain()
		}, 200, "", ""},
		"before it": {func(w http.ResponseWriter, drain func()) {
			drain()
			begin(w)
			write(w, "data: 1\n\n")
		}, 503, onlinewire.Elsewhere, ""},
		"before a whole one": {func(w http.ResponseWriter, drain func()) {
			drain()
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 503, onlinewire.Elsewhere, ""},
		"after a whole one": {func(w http.ResponseWriter, drain func()) {
			drain()
			w.WriteHeader(http.StatusOK)
			write(w, "{}")
		}, 200, "", ""},
		"never": {func(w http.ResponseWriter, _ func()) { begin(w); write(w, "data: 1\n\n") }, 200, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &slot{}
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w, func() { s.cut = true }) })
			resp := serve(t, online.Handler{Handler: h}, s)
			defer resp.Body.Close()
			if why := resp.Trailer.Get(onlinewire.Broken); resp.StatusCode != c.status ||
				resp.Header.Get(onlinewire.Outcome) != c.outcome || why != c.broken {
				t.Errorf("the answer is %d %q, broken: %q", resp.StatusCode, resp.Header.Get(onlinewire.Outcome), why)
			}
		})
	}
}

// A program in a sandbox asks an engine in this process as it asks servers.
func TestPasserOfATargetInThisProcess(t *testing.T) {
	t.Parallel()
	ask := func(ctx context.Context, e engine.Engine) (int, string, error) {
		a, err := online.PasserOf(online.Whole{Engine: e}).Pass(ctx, engine.RawRequest{Path: "chat/completions",
			Body: []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)})
		if err != nil {
			return 0, "", err
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		return a.Status, string(text), err
	}
	status, text, err := ask(t.Context(), mock.New(mock.Config{}))
	if status != 200 || !strings.Contains(text, `"choices"`) || err != nil {
		t.Errorf("%d %s, %v", status, text, err)
	}
	down := answering(func(context.Context) error { return fault.New(fault.Unavailable, "no model") })
	if _, _, err := ask(t.Context(), down); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a model: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := answering(func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() })
	if _, _, err := ask(ctx, stuck); !fault.Is(err, fault.Canceled) {
		t.Errorf("after the agent has left: %v", err)
	}
}

// answering is an engine that fails.
type answering func(ctx context.Context) error

func (f answering) Answer(ctx context.Context, _ engine.Request, _ func()) (engine.Answer, error) {
	return engine.Answer{}, f(ctx)
}
func (answering) Ready(context.Context) (string, error) { return "", nil }
func (answering) Close() error                          { return nil }
