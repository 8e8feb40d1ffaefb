package openai_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// serve returns a client of a server with the handler, which runs until the test
// ends.
func serve(t *testing.T, h http.HandlerFunc) *openai.Client {
	t.Helper()
	return dial(t, openai.Config{}, h)
}

func dial(t *testing.T, cfg openai.Config, h http.HandlerFunc) *openai.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	if cfg.BaseURL == "" {
		cfg.BaseURL = s.URL
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// sends returns a handler that sends a status, a content type and a body.
func sends(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func streams(body string) http.HandlerFunc {
	return sends(200, "text/event-stream; charset=utf-8", body)
}
func whole(body string) http.HandlerFunc { return sends(200, "application/json", body) }

// events returns a stream of data lines with [DONE] at its end.
func events(chunks ...string) string {
	return "data: " + strings.Join(append(chunks, "[DONE]"), "\n\ndata: ") + "\n\n"
}

func ask(t *testing.T, c *openai.Client, r engine.Request) (engine.Answer, error) {
	t.Helper()
	return c.Answer(t.Context(), r, func() {})
}

var hello = enginetest.ChatRequest("hello")

func TestAnswersOfServersAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stream, whole string // the one that is not empty is sent
		want                engine.Answer
	}{
		{
			name: "vLLM chat",
			stream: events(
				`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant",`+
					`"content":""},"logprobs":null,"finish_reason":null}],"usage":null}`,
				`{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}`,
				`{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}`,
				`{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop","stop_reason":null}]}`,
				`{"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}`),
			want: engine.Answer{Text: "Hello", FinishReason: "stop", Model: "m",
				Usage: engine.Usage{PromptTokens: 3, CompletionTokens: 2}},
		},
		{name: "completion",
			stream: events(`{"choices":[{"text":"a"}]}`, `{"choices":[{"text":"b","finish_reason":"length"}]}`),
			want:   engine.Answer{Text: "ab", FinishReason: "length"}},
		{name: "CRLF, comments, other fields, no space",
			stream: ": ping\r\nevent: message\r\nid: 1\r\ndata:{\"choices\":[{\"text\":\"a\"," +
				"\"finish_reason\":\"stop\"}]}\r\n\r\n: ping\r\n\r\ndata:[DONE]\r\n\r\n",
			want: engine.Answer{Text: "a", FinishReason: "stop"}},
		{name: "U+2028, U+2029 and U+0085 do not end lines",
			stream: events("{\"choices\":[{\"text\":\"a\u2028b\u2029c\u0085d\",\"finish_reason\":\"stop\"}]}"),
			want:   engine.Answer{Text: "a\u2028b\u2029c\u0085d", FinishReason: "stop"}},
		{name: "no finish reason before [DONE]", stream: events(`{"choices":[{"text":"a","finish_reason":null}]}`),
			want: engine.Answer{Text: "a"}},
		{name: "no [DONE] after the finish reason",
			stream: "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}",
			want:   engine.Answer{Text: "a", FinishReason: "stop"}},
		{name: "only the first choice", stream: events(`{"choices":[{"index":1,"text":"x"},{"index":0,"text":"a"}]}`),
			want: engine.Answer{Text: "a"}},
		{name: "reasoning, by either name", stream: events(
			`{"choices":[{"delta":{"reasoning_content":"hm","content":null}}]}`, `{"choices":[{"delta":{"reasoning":"m"}}]}`,
			`{"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}`),
			want: engine.Answer{Text: "ok", Reasoning: "hmm", FinishReason: "stop", Rest: engine.Rest{SaysReasoning: true}}},
		{name: "reasoning, by both names",
			stream: events(`{"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm","content":"a"}}]}`),
			want:   engine.Answer{Text: "a", Reasoning: "hm", Rest: engine.Rest{SaysReasoning: true}}},
		{name: "tool calls in pieces", stream: events(
			`{"choices":[{"delta":{"content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f",`+
				`"arguments":""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":\"\u2028"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g",`+
				`"arguments":{"y":1}}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"\"}"}}]},`+
				`"finish_reason":"tool_calls"}]}`),
			want: engine.Answer{FinishReason: "tool_calls",
				ToolCalls: []byte(`[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":\"` + "\u2028" +
					`\"}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{\"y\":1}"}}]`)}},
		{name: "chat logprobs in pieces", stream: events(
			`{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1}],"refusal":null}}]}`,
			`{"choices":[{"delta":{"content":"b"},"logprobs":{"content":[]}}]}`,
			`{"choices":[{"delta":{"content":"c"},"logprobs":{"content":[{"token":"c","logprob":-2.50}]},`+
				`"finish_reason":"stop"}]}`),
			want: engine.Answer{Text: "abc", FinishReason: "stop",
				Logprobs: []byte(`{"content":[{"token":"a","logprob":-1},{"token":"c","logprob":-2.50}],"refusal":null}`)}},
		{name: "completion logprobs with NaN", stream: events(
			`{"choices":[{"text":"NaN","logprobs":{"tokens":["NaN"],"token_logprobs":[NaN],`+
				`"top_logprobs":[{"NaN":-Infinity}]}}]}`,
			`{"choices":[{"text":"b","logprobs":{"tokens":["b"],"token_logprobs":[-1e-9],"top_logprobs":[null]}}]}`),
			want: engine.Answer{Text: "NaNb",
				Logprobs: []byte(`{"tokens":["NaN","b"],"token_logprobs":[null,-1e-9],"top_logprobs":[{"NaN":null},null]}`)}},
		{name: "logprobs that repeat a name are dropped",
			stream: events(`{"choices":[{"text":"a","logprobs":{"content":[{"a":1,"a":2}]}}]}`), want: engine.Answer{Text: "a"}},
		{name: "lone surrogates and invalid UTF-8",
			stream: events("{\"choices\":[{\"text\":\"a\\ud83d b\xff c\\u0000 \\ud83d\\ude00\"," +
				"\"logprobs\":{\"tokens\":[\"\\ud83d\",\"\xff\"]}}]}"),
			want: engine.Answer{Text: "a\uFFFD b\uFFFD c\x00 😀", Logprobs: []byte("{\"tokens\":[\"\uFFFD\",\"\uFFFD\"]}")}},
		{name: "invalid usage",
			stream: events(`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":-1}}`,
				`{"choices":[],"usage":"none"}`), want: engine.Answer{Text: "a"}},
		{name: "error: null in chunks", stream: events(`{"error":null,"choices":[{"text":"a"}]}`),
			want: engine.Answer{Text: "a"}},
		{name: "whole chat",
			whole: `{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant",` +
				`"content":"hi","reasoning_content":"r","tool_calls":[ {"id":"a"} ]},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
			want: engine.Answer{Text: "hi", Reasoning: "r", ToolCalls: []byte(`[{"id":"a"}]`), FinishReason: "stop", Model: "m",
				Usage: engine.Usage{PromptTokens: 1, CompletionTokens: 2}}},
		{name: "whole completion", whole: `{"choices":[{"text":"hi","finish_reason":"stop","logprobs":{"tokens":["hi"]}}]}`,
			want: engine.Answer{Text: "hi", FinishReason: "stop", Logprobs: []byte(`{"tokens":["hi"]}`)}},
		{name: "endless finish reason",
			whole: `{"choices":[{"text":"a","finish_reason":"` + strings.Repeat("ü€", 100) + `"}]}`,
			want:  engine.Answer{Text: "a", FinishReason: strings.Repeat("ü€", 12) + "ü"}},
		{name: "whole, tools empty",
			whole: `{"choices":[{"message":{"content":"hi","tool_calls":[ ]},"finish_reason":"stop"}]}`,
			want:  engine.Answer{Text: "hi", FinishReason: "stop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := streams(c.stream)
			if c.whole != "" {
				h = whole(c.whole)
			}
			got, err := ask(t, serve(t, h), hello)
			if err != nil {
				t.Fatal(err)
			}
			if c.want.Usage == (engine.Usage{}) { // the server says nothing
				if !got.Usage.Unknown {
					t.Errorf("the usage %+v counts as known", got.Usage)
				}
				got.Usage = engine.Usage{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the answer differs (- is wanted):\n%s", diff)
			}
		})
	}
}

func TestBodyIsSentUnchanged(t *testing.T) {
	t.Parallel()
	const added = `"stream":true,"stream_options":{"include_usage":true}}`
	for body, want := range map[string]string{
		`{"model":"m","messages":[],"top_k":5e0}`: `{"model":"m","messages":[],"top_k":5e0,` + added,
		` {"a" : 1 } ` + "\n":                     `{"a" : 1,` + added,
		`{ }`:                                     `{` + added,
	} {
		var got string
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got = r.Method + " " + r.URL.Path + " " + string(b)
			whole(`{"choices":[{"message":{"content":"a"}}]}`)(w, r)
		})
		if _, err := ask(t, c, engine.Request{Endpoint: engine.Chat, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		if want = "POST /v1/chat/completions " + want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for _, body := range []string{``, `[]`, `{`, `"x"`} {
		_, err := ask(t, serve(t, whole(`{}`)), engine.Request{Endpoint: engine.Chat, Body: []byte(body)})
		if !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != fault.Refused {
			t.Errorf("body %q: %v", body, err)
		}
	}
}

func TestKeepAlivesAreNotProgress(t *testing.T) {
	t.Parallel()
	calls := 0
	c := serve(t,
		streams(": ping\n\n: ping\n\ndata:\n\n"+events(`{"choices":[{"text":"a"}]}`, `{"choices":[{"text":"b"}]}`)))
	if _, err := c.Answer(t.Context(), hello, func() { calls++ }); err != nil {
		t.Fatal(err)
	}
	if calls != 3 { // headers and two pieces
		t.Errorf("%d calls of progress, want 3", calls)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	peers := map[string]bool{}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		peers[r.RemoteAddr] = true
		streams(events(`{"choices":[{"text":"a","finish_reason":"stop"}]}`))(w, r)
		_ = http.NewResponseController(w).Flush() // the stream's end follows in another packet
	})
	for range 20 {
		if _, err := ask(t, c, hello); err != nil {
			t.Fatal(err)
		}
	}
	if len(peers) > 5 { // one; a busy machine may take longer than the wait for a stream's end
		t.Errorf("20 requests took %d connections", len(peers))
	}
}

func TestKeyIsSentAndNeverShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, key, user, want string
	}{
		{"key", "sk-sesame", "", "Bearer sk-sesame"},
		{"key and user", "sk-sesame", "u:pw-sesame@", "Bearer sk-sesame"},
		{"user", "", "u:pw-sesame@", "Basic dTpwdy1zZXNhbWU="},
		{"neither", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var sent string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent = r.Header.Get("Authorization")
				sends(401, "application/json", `{"error":{"message":"Incorrect API key provided: `+c.key+`"}}`)(w, r)
			}))
			t.Cleanup(s.Close)
			url := strings.Replace(s.URL, "://", "://"+c.user, 1)
			client := newClient(t, url, c.key)
			_, refused := ask(t, client, hello)
			if !fault.Is(refused, fault.Denied) || sent != c.want {
				t.Errorf("sent %q: %v (%v)", sent, refused, fault.KindOf(refused))
			}
			_, notReady := client.Ready(t.Context())
			s.Close()
			_, unreachable := ask(t, client, hello)
			for _, err := range []error{refused, notReady, unreachable} {
				if err == nil || strings.Contains(err.Error(), "sesame") ||
					strings.Contains(fmt.Sprintf("%+v", client), "sk-sesame") {
					t.Errorf("no error, or the key is shown: %v", err)
				}
			}
		})
	}
}

// A proxy may repeat the key in a text with a status of success, across the end of what
// is shown of it.
func TestKeyIsNotShownOfTextInPlaceOfAnAnswer(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 74} {
		c := dial(t, openai.Config{Key: secret.NewValue("sk-sesame")},
			sends(200, "text/plain", strings.Repeat(".", before)+"sk-sesame is not known"))
		if _, err := ask(t, c, hello); !fault.Is(err, fault.Corrupt) || strings.Contains(err.Error(), "sk-") {
			t.Errorf("after %d bytes: %v (%v)", before, err, fault.KindOf(err))
		}
	}
}

func TestKeyIsOneLine(t *testing.T) {
	t.Parallel()
	var sent string
	c := dial(t, openai.Config{Key: secret.NewValue(" sk-1\n")}, func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		whole(`{"choices":[{"text":"a"}]}`)(w, r)
	})
	if _, err := ask(t, c, hello); err != nil || sent != "Bearer sk-1" {
		t.Errorf("sent %q, %v", sent, err)
	}
	_, err := openai.New(openai.Config{BaseURL: "http://h", Key: secret.NewValue("sk-sesame\nsk-2")})
	if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("two lines: %v", err)
	}
}
