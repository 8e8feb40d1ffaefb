package fakellm_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/localstack/fakellm"
	"rollout/shared/fault"
)

// post sends a body to a server without a network.
func post(t *testing.T, s http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body)))
	return w
}

func newServer(t *testing.T, cfg fakellm.Config) *fakellm.Server {
	t.Helper()
	s, err := fakellm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnswersDependOnlyOnTheRequest(t *testing.T) {
	t.Parallel()
	const chat = `{"model":"m","messages":[{"role":"system","content":"be kind"},` +
		`{"role":"user","content":"name a colour"}]`
	bodies := []string{chat + `}`, chat + `,"seed":1,"temperature":0.5}`, chat + `,"seed":2,"temperature":0.5}`, chat +
		`,"seed":2,"temperature":0.7}`}
	one, two := newServer(t, fakellm.Config{Tokens: 20}), newServer(t, fakellm.Config{Tokens: 20})
	first := map[string]string{}
	for _, b := range bodies {
		first[b] = post(t, one, "/v1/chat/completions", b).Body.String()
		if !strings.Contains(first[b], "echo: name a colour") {
			t.Errorf("%s\n%s", b, first[b])
		}
	}
	texts := map[string]bool{}
	for i := range bodies { // in the other order, on another server
		b := bodies[len(bodies)-1-i]
		again := post(t, two, "/v1/chat/completions", b).Body.String()
		if again != first[b] {
			t.Errorf("%s\nfirst %s\nthen  %s", b, first[b], again)
		}
		texts[again] = true
	}
	if len(texts) != len(bodies) {
		t.Errorf("%d requests got %d answers", len(bodies), len(texts))
	}
	greedy := []string{`{"prompt":"x","temperature":0,"seed":1}`, `{"prompt":"x","temperature":0,"seed":2}`}
	if a, b := post(t, one, "/v1/completions", greedy[0]).Body.String(),
		post(t, one, "/v1/completions", greedy[1]).Body.String(); a != b {
		t.Errorf("temperature 0 depends on the seed:\n%s\n%s", a, b)
	}
}

func TestStreamedAndWholeAnswersAreEqual(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Tokens: 12})
	unwrapped := http.NewServeMux() // makes every request a plain one
	unwrapped.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		plain := strings.Replace(string(b), `"stream":true`, `"stream":false`, 1)
		s.ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.Path, strings.NewReader(plain)))
	})
	streaming, plain := httptest.NewServer(s), httptest.NewServer(unwrapped)
	t.Cleanup(func() { streaming.Close(); plain.Close() })
	strange := 0
	for n := range 40 {
		r := enginetest.ChatRequest(fmt.Sprintf("question %d", n), `"logprobs":true`, `"max_tokens":11`)
		if n%2 == 1 {
			r = enginetest.CompletionRequest(fmt.Sprintf("question %d", n), `"logprobs":1`)
		}
		want, err := client(t, plain.URL, 1).Answer(t.Context(), r, func() {})
		if err != nil {
			t.Fatal(err)
		}
		got, err := client(t, streaming.URL, 1).Answer(t.Context(), r, func() {})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", r.Body, err, diff)
		}
		if strings.Contains(got.Text, "\u2028") {
			strange++
		}
		if finish := map[engine.Endpoint]string{engine.Chat: "length",
			engine.Completion: "stop"}[r.Endpoint]; got.FinishReason != finish || len(got.Logprobs) == 0 {
			t.Errorf("%s: finish %q, logprobs %s", r.Body, got.FinishReason, got.Logprobs)
		}
	}
	if strange == 0 || strange == 40 {
		t.Errorf("%d of 40 answers hold U+2028", strange)
	}
}

func TestLatencyDependsOnTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Latency: 20 * time.Millisecond, Spread: 0.5})
		took := map[time.Duration]bool{}
		for n := range 20 {
			body := fmt.Sprintf(`{"prompt":"%d"}`, n)
			var once time.Duration
			for range 2 {
				start := time.Now()
				post(t, s, "/v1/completions", body)
				d := time.Since(start)
				if d < 10*time.Millisecond || d > 30*time.Millisecond || once != 0 && d != once {
					t.Errorf("request %d took %v, before %v", n, d, once)
				}
				once = d
			}
			took[once] = true
		}
		if len(took) < 10 {
			t.Errorf("20 requests had %d latencies", len(took))
		}
	})
}

func TestRequestsBeyondMaxRunningWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Latency: time.Second, MaxRunning: 2})
		start := time.Now()
		done := make(chan struct{})
		for range 6 {
			go func() { post(t, s, "/v1/completions", `{"prompt":"x"}`); done <- struct{}{} }()
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		for _, want := range []string{`vllm:num_requests_running{engine="0",model_name="fake"} 2.0`,
			`vllm:num_requests_waiting{engine="0",model_name="fake"} 4.0`,
			`vllm:kv_cache_usage_perc{engine="0",model_name="fake"} 1.0`,
			`fakellm_requests_total{model_name="fake"} 6`} {
			if !strings.Contains(w.Body.String(), want+"\n") {
				t.Errorf("the metrics have no %s:\n%s", want, w.Body)
			}
		}
		for range 6 {
			<-done
		}
		if took := time.Since(start); took != 3*time.Second || s.PeakRunning() != 2 || s.Requests() != 6 {
			t.Errorf("took %v, %d at once, %d requests", took, s.PeakRunning(), s.Requests())
		}
	})
}

func TestOverloadAlternates(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Faults: fakellm.Faults{OverloadEvery: 3}})
	var got []int
	for range 9 {
		w := post(t, s, "/v1/completions", `{"prompt":"x"}`)
		got = append(got, w.Code)
		if (w.Code != 200) != (w.Header().Get("Retry-After") == "1") {
			t.Errorf("%d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
	}
	if diff := cmp.Diff([]int{200, 200, 429, 200, 200, 503, 200, 200, 429}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMinuteLimitHoldsForAnyMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Faults: fakellm.Faults{MinuteLimit: 2}})
		for _, c := range []struct {
			at    time.Duration // since the last one
			code  int
			retry string
		}{
			{0, 200, ""}, {50 * time.Second, 200, ""}, {0, 429, "11"}, {9 * time.Second, 429, "2"},
			{time.Second, 200, ""}, {time.Second, 429, "50"},
		} {
			time.Sleep(c.at)
			w := post(t, s, "/v1/completions", `{"prompt":"x"}`)
			if w.Code != c.code || w.Header().Get("Retry-After") != c.retry {
				t.Errorf("%d with Retry-After %q, want %d with %q", w.Code, w.Header().Get("Retry-After"), c.code, c.retry)
			}
		}
	})
}

func TestMinuteLimitsAreStated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Tokens: 9, Faults: fakellm.Faults{MinuteLimit: 5, MinuteTokens: 25,
			LimitHeaders: true}})
		for _, c := range []struct {
			at              time.Duration // since the last one
			code            int
			requests, reset string // left
			tokens          string
		}{
			{0, 200, "4", "1m0s", "15"}, {10 * time.Second, 200, "3", "1m0s", "5"}, {time.Second, 429, "3", "59s", "5"},
			{49 * time.Second, 200, "3", "1m0s", "5"},
		} {
			time.Sleep(c.at)
			h := post(t, s, "/v1/completions", `{"prompt":"x"}`)
			got := []string{fmt.Sprint(h.Code), h.Header().Get("X-Ratelimit-Limit-Requests"),
				h.Header().Get("X-Ratelimit-Remaining-Requests"), h.Header().Get("X-Ratelimit-Reset-Requests"),
				h.Header().Get("X-Ratelimit-Limit-Tokens"), h.Header().Get("X-Ratelimit-Remaining-Tokens")}
			want := []string{fmt.Sprint(c.code), "5", c.requests, c.reset, "25", c.tokens}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("after %s: %s", c.at, diff)
			}
			if c.code == 429 && !strings.Contains(h.Body.String(), "tokens per min") {
				t.Errorf("it says %s", h.Body)
			}
		}
	})
}

func TestDieExitsAtItsPrompt(t *testing.T) {
	t.Parallel()
	var codes []int
	s := newServer(t, fakellm.Config{Faults: fakellm.Faults{Die: "<die>"},
		Exit: func(code int) { codes = append(codes, code) }})
	post(t, s, "/v1/completions", `{"prompt":"live"}`)
	post(t, s, "/v1/chat/completions", `{"messages":[{"role":"system","content":"<die>"},{"role":"user","content":"x"}]}`)
	if diff := cmp.Diff([]int{1}, codes); diff != "" {
		t.Error(diff)
	}
}

func TestDieAfterExitsAfterTheCount(t *testing.T) {
	t.Parallel()
	died := 0
	s := newServer(t, fakellm.Config{Faults: fakellm.Faults{DieAfter: 2}, Exit: func(int) { died++ }})
	for n, want := range []int{0, 0, 1} {
		post(t, s, "/v1/completions", `{"prompt":"x"}`)
		if died != want {
			t.Errorf("after %d requests it died %d times", n+1, died)
		}
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	_, url := start(t, fakellm.Config{})
	c := client(t, url, 1)
	for _, r := range []engine.Request{
		{Endpoint: engine.Chat, Body: []byte(`{}`)}, {Endpoint: engine.Completion, Body: []byte(`{}`)},
		{Endpoint: engine.Chat, Body: []byte(`{"messages":5}`)}, {Endpoint: engine.Chat, Body: []byte(`{"messages":[}`)},
	} {
		if _, err := c.Answer(t.Context(), r, func() {}); !fault.Is(err, fault.Invalid) ||
			fault.ClassOf(err) != fault.Refused {
			t.Errorf("%s: %v", r.Body, err)
		}
	}
}

func TestBadConfigsAreRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []fakellm.Config{{Spread: 2}, {Spread: -1}, {Latency: -1}, {Tokens: -1}, {MaxRunning: -1},
		{TokenLatency: -1}, {Saturation: -1},
		{Faults: fakellm.Faults{ErrorAfter: -1}}, {Faults: fakellm.Faults{HealthDelay: -1}}} {
		if _, err := fakellm.New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
