package fakellm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine/enginetest"
	"rollout/localstack/fakellm"
)

// faulty applies each fault to prompts that contain its name in angle brackets.
var faulty = fakellm.Faults{
	Refuse: "<refuse>", HangEarly: "<hang-early>", Hang: "<hang>", DropEarly: "<drop-early>", Drop: "<drop>",
	Error: "<error>",
	Empty: "<empty>", NoChoices: "<no-choices>", Echo: "<echo>", BadLogprobs: "<logprobs>", Surrogates: "<surrogates>",
	Separators: "<separators>",
	JSONSpaces: "<spaces>", JSONStuck: "<stuck>",
}

// text returns the text and finish reason of a non-streamed completion.
func text(t *testing.T, body []byte) (text, finish string) {
	t.Helper()
	var a struct {
		Choices []struct {
			Text   string
			Finish string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(body, &a); err != nil || len(a.Choices) != 1 {
		t.Fatalf("the body is not an answer: %v\n%s", err, body)
	}
	return a.Choices[0].Text, a.Choices[0].Finish
}

func TestFaultsReturnInvalidAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Faults: faulty})
	for _, c := range []struct {
		body string
		code int
		want []string
	}{
		{`{"prompt":"<refuse>"}`, 400, []string{`"error"`, "refused"}},
		{`{"prompt":"<error>"}`, 500, []string{`"error"`, `"code":500`}},
		{`{"prompt":"<empty>"}`, 200, []string{`{}`}},
		{`{"prompt":"<no-choices>"}`, 200, []string{`"usage":{"prompt_tokens":1,`}},
		{`{"prompt":"<echo>","seed":5}`, 200, []string{`{"prompt":"<echo>","seed":5}`}},
	} {
		w := post(t, s, "/v1/completions", c.body)
		if w.Code != c.code || strings.Contains(w.Body.String(), "choices\"") || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
		for _, want := range c.want {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s, want %s", c.body, w.Body, want)
			}
		}
	}
}

func TestHangsSendHeadersOrNothing(t *testing.T) {
	t.Parallel()
	for prompt, headers := range map[string]bool{"<hang-early>": false, "<hang>": true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, fakellm.Config{Faults: faulty})
			ctx, leave := context.WithCancel(t.Context())
			w, ended := httptest.NewRecorder(), false
			go func() {
				s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/completions",
					strings.NewReader(`{"prompt":"`+prompt+`"}`)))
				ended = true
			}()
			time.Sleep(time.Hour)
			synctest.Wait()
			if ended || w.Flushed != headers || w.Body.Len() != 0 {
				t.Errorf("%s: ended %v, headers %v, body %q", prompt, ended, w.Flushed, w.Body)
			}
			leave()
			synctest.Wait()
			if !ended {
				t.Errorf("%s does not end when the client leaves", prompt)
			}
		})
	}
}

func TestDropsBreakTheConnection(t *testing.T) {
	t.Parallel()
	_, url := start(t, fakellm.Config{Faults: faulty})
	send := func(prompt string) (*http.Response, error) {
		return http.Post(url+"/v1/completions", "application/json",
			strings.NewReader(`{"stream":true,"prompt":"`+prompt+`"}`))
	}
	if resp, err := send("<drop-early>"); err == nil {
		t.Errorf("got headers (%s), want a broken connection", resp.Status)
	}
	resp, err := send("<drop>")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(string(body), "data: ") ||
		strings.Contains(string(body), "DONE") {
		t.Errorf("%v after %q", err, body)
	}
}

func TestFrozenServerStaysHealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Latency: time.Second, TokenLatency: time.Second,
			Faults: fakellm.Faults{FreezeAfter: 2}})
		ctx, leave := context.WithCancel(t.Context())
		var ended atomic.Int64
		ask := func(stream bool) {
			body := fmt.Sprintf(`{"prompt":"x","stream":%v}`, stream)
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/v1/completions",
				strings.NewReader(body)))
			ended.Add(1)
		}
		go ask(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if ended.Load() != 1 {
			t.Fatalf("%d answers before it froze", ended.Load())
		}
		go ask(true)
		time.Sleep(1500 * time.Millisecond) // in the middle of its words
		go ask(false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if running := metric(t, s, "num_requests_running"); ended.Load() != 1 || running != "2.0" {
			t.Errorf("%d answers, %s running", ended.Load(), running)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/health", nil))
		if w.Code != http.StatusOK {
			t.Errorf("/health is %d", w.Code)
		}
		leave()
		synctest.Wait()
		if aborted := metric(t, s, `finished_reason="abort"`); ended.Load() != 3 || aborted != "2.0" {
			t.Errorf("%d ended, %s aborted after the clients left", ended.Load(), aborted)
		}
	})
}

func TestHealthDelayGrowsWithRunningRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakellm.Config{Latency: time.Hour, Faults: fakellm.Faults{HealthDelay: time.Second}})
		for range 3 {
			go post(t, s, "/v1/completions", `{"prompt":"x"}`)
		}
		synctest.Wait()
		asked := time.Now()
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/health", nil))
		if took := time.Since(asked); took != 3*time.Second {
			t.Errorf("with 3 running requests /health took %v, want 3s", took)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestRetryAfterIsANumberOrADate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for date, want := range map[bool]string{false: "7", true: "Sat, 01 Jan 2000 00:00:07 GMT"} {
			s := newServer(t, fakellm.Config{Faults: fakellm.Faults{OverloadEvery: 1, RetryAfter: 7 * time.Second,
				RetryDate: date}})
			if w := post(t, s, "/v1/completions", `{"prompt":"x"}`); w.Code != 429 || w.Header().Get("Retry-After") != want {
				t.Errorf("%d with Retry-After %q, want %q", w.Code, w.Header().Get("Retry-After"), want)
			}
		}
	})
}

func TestTooLongHasBothMessagesOfVLLM(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exact bool
		body  string
		want  string // part of the error; empty for an answer
	}{
		{false, `{"prompt":"a b c d e f g h"}`, ""},
		{false, `{"prompt":"a b c d e","max_tokens":3}`, ""},
		{false, `{"prompt":"a b c d e f g h i"}`,
			"maximum context length is 8 tokens. However, you requested 0 output tokens " +
				"and your prompt contains at least 9 input tokens, for a total of at least 9 tokens."},
		{false, `{"prompt":"a b c d e","max_tokens":6}`,
			"you requested 6 output tokens and your prompt contains at least 3 input tokens, for a total of at least 9 tokens."},
		{false, `{"prompt":"a","max_tokens":9}`,
			"you requested 9 output tokens and your prompt contains at least 1 input tokens"},
		{true, `{"prompt":"a b c d e f g h i"}`,
			"maximum context length is 8 tokens. However, your request has 9 input tokens."},
		{true, `{"prompt":"a b c d e","max_tokens":6}`, "you requested 11 tokens (5 in the messages, 6 in the completion)."},
	} {
		s := newServer(t, fakellm.Config{Faults: fakellm.Faults{ContextLimit: 8, ContextExact: c.exact}})
		w := post(t, s, "/v1/completions", c.body)
		if (w.Code == 200) != (c.want == "") || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s\nwant %s", c.body, w.Code, w.Body, c.want)
		}
		if got := post(t, s, "/tokenize",
			`{"model":"m","messages":[{"role":"user","content":"a b c"}]}`).Body.String(); !strings.Contains(got,
			`"count":3,"max_model_len":8,`) {
			t.Errorf("tokenize: %s", got)
		}
		if got := post(t, s, "/tokenize", `{"prompt":"a b"}`).Body.String(); !strings.Contains(got, `"count":2,`) {
			t.Errorf("tokenize: %s", got)
		}
		models := httptest.NewRecorder()
		s.ServeHTTP(models, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/models", nil))
		if !strings.Contains(models.Body.String(), `"max_model_len":8`) {
			t.Errorf("models: %s", models.Body)
		}
	}
}

func TestErrorAfterFailsAllLaterRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Faults: fakellm.Faults{ErrorAfter: 2}})
	var got []int
	for range 4 {
		got = append(got, post(t, s, "/v1/completions", `{"prompt":"x"}`).Code)
	}
	if diff := cmp.Diff([]int{200, 200, 500, 500}, got); diff != "" {
		t.Error(diff)
	}
}

func TestJSONModeReturnsJSON(t *testing.T) {
	t.Parallel()
	s := newServer(t, fakellm.Config{Tokens: 9, Faults: faulty})
	for _, mode := range []string{`"response_format":{"type":"json_object"}`,
		`"response_format":{"type":"json_schema","json_schema":{}}`,
		`"structured_outputs":{"json":{}}`, `"guided_json":{}`, `"json_schema":"{}"`} {
		for n := range 8 {
			got, finish := text(t, post(t, s, "/v1/completions",
				fmt.Sprintf(`{"prompt":"number %d \"quoted\"",%s}`, n, mode)).Body.Bytes())
			var a struct{ Answer string }
			if err := json.Unmarshal([]byte(got), &a); err != nil || finish != "stop" ||
				!strings.Contains(a.Answer, `"quoted"`) {
				t.Errorf("%s: %v, finish %s: %s", mode, err, finish, got)
			}
		}
	}
	if got, _ := text(t, post(t, s, "/v1/completions",
		`{"prompt":"<spaces>","response_format":{"type":"text"}}`).Body.Bytes()); json.Valid([]byte(got)) ||
		strings.TrimSpace(got) == "" {
		t.Errorf("text mode answers %q", got)
	}
}

func TestJSONFaultsReturnWhiteSpaceUpToTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prompt, trimmed string
	}{{"<spaces>", ""}, {"<stuck>", "{\n\"answer\":"}} {
		f := faulty
		f.SpacesTimes = 2
		always, twice := newServer(t, fakellm.Config{Faults: faulty}), newServer(t, fakellm.Config{Faults: f})
		for n := range 4 {
			body := fmt.Sprintf(`{"prompt":"%s","seed":%d,"max_tokens":50,"response_format":{"type":"json_object"}}`, c.prompt,
				n)
			got, finish := text(t, post(t, always, "/v1/completions", body).Body.Bytes())
			if strings.TrimSpace(got) != c.trimmed || finish != "length" || len(got) < 50 {
				t.Errorf("request %d: %q, finish %s", n, got, finish)
			}
			got, finish = text(t, post(t, twice, "/v1/completions", body).Body.Bytes())
			if json.Valid([]byte(got)) != (n >= 2) || (finish == "stop") != (n >= 2) {
				t.Errorf("request %d of a prompt with two white-space answers: %q, finish %s", n, got, finish)
			}
		}
	}
}

func TestQuirksReachTheClient(t *testing.T) {
	t.Parallel()
	_, url := start(t, fakellm.Config{Faults: faulty})
	for _, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{"stream":%v,"logprobs":1,"prompt":"<logprobs> <surrogates> <separators> x"}`, stream)
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`NaN`, `-Infinity`, `Infinity`, `\udc00`, "one\u2028two\u2029three\u0085four"} {
			if !strings.Contains(string(raw), want) {
				t.Errorf("streamed %v: it lacks %q:\n%s", stream, want, raw)
			}
		}
		if !utf8.Valid(raw) {
			t.Errorf("streamed %v: not UTF-8", stream)
		}
	}
	a, err := client(t, url, 1).Answer(t.Context(),
		enginetest.ChatRequest("<logprobs> <surrogates> <separators> x", `"logprobs":true`), func() {})
	if err != nil || !strings.Contains(a.Text, "one\u2028two\u2029three\u0085four high \uFFFD low \uFFFD.") ||
		!json.Valid(a.Logprobs) || !strings.Contains(string(a.Logprobs), "null") {
		t.Errorf("the client reads %q, %s, %v", a.Text, a.Logprobs, err)
	}
}
