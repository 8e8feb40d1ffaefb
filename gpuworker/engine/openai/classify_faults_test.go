package openai_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

func newClient(t *testing.T, url, key string) *openai.Client {
	t.Helper()
	c, err := openai.New(openai.Config{BaseURL: url, Key: secret.NewValue(key), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// faulty is a server's behaviour and the fault that it must lead to.
type faulty struct {
	name    string
	handler http.HandlerFunc
	kind    fault.Kind
	class   fault.Class
	says    string // part of the error
}

func check(t *testing.T, cases []faulty) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := ask(t, serve(t, c.handler), hello)
			if !fault.Is(err, c.kind) || fault.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %+v, %v (%v, class %q); want %v, class %q, with the text %q",
					a, err, fault.KindOf(err), fault.ClassOf(err), c.kind, c.class, c.says)
			}
		})
	}
}

func TestC15AnswerWithoutChoicesIsEngineFault(t *testing.T) {
	t.Parallel()
	check(t, []faulty{
		{"empty object", whole(`{}`), fault.Corrupt, fault.Engine, "no choices"},
		{"empty choices", whole(`{"choices":[],"usage":{}}`), fault.Corrupt, fault.Engine, "no choices"},
		{"null choices", whole(`{"choices":null}`), fault.Corrupt, fault.Engine, "no choices"},
		{"empty choice", whole(`{"choices":[{}]}`), fault.Corrupt, fault.Engine, "no choices"},
		{"choice of an index", whole(`{"choices":[{"index":0,"finish_reason":null}]}`), fault.Corrupt, fault.Engine,
			"no choices"},
		{"echo of the request", whole(string(hello.Body)), fault.Corrupt, fault.Engine, "no choices"},
		{"empty body", whole(``), fault.Corrupt, fault.Engine, "malformed"},
		{"nested error", whole(`{"error":{"message":"boom","type":"InternalServerError","code":500}}`), fault.Corrupt,
			fault.Engine, "boom"},
		{"flat error", whole(`{"object":"error","message":"boom","type":"x","code":null}`), fault.Corrupt, fault.Engine,
			"boom"},
		{"error with a request's status",
			whole(`{"object":"error","message":"bad top_p","type":"BadRequestError","code":400}`), fault.Invalid, fault.Refused,
			"bad top_p"},
		{"empty stream", streams(events()), fault.Corrupt, fault.Engine, "no choices"},
		{"stream of usage", streams(events(`{"choices":[],"usage":{"prompt_tokens":1}}`)), fault.Corrupt, fault.Engine,
			"no choices"},
		{"error in a stream", streams(events(`{"choices":[{"text":"a"}]}`, `{"error":{"message":"boom","code":500}}`)),
			fault.Corrupt, fault.Engine, "boom"},
		{"flat error in a stream", streams(events(`{"object":"error","message":"boom","code":429}`)), fault.Throttled, "",
			"boom"},
		{"error field in a stream", streams("error: {\"code\":500,\"message\":\"boom\"}\n\n"), fault.Corrupt, fault.Engine,
			"boom"},
		{"bare error in a stream", streams(`{"error":"boom"}`), fault.Corrupt, fault.Engine, "boom"},
		{"finish reason error", streams(events(`{"choices":[{"text":"a","finish_reason":"error"}]}`)), fault.Corrupt,
			fault.Engine, `"error"`},
		{"finish reason abort", whole(`{"choices":[{"text":"a","finish_reason":"abort"}]}`), fault.Corrupt, fault.Engine,
			`"abort"`},
		{"not JSON", sends(200, "text/html", "<html>login</html>"), fault.Corrupt, fault.Engine, "malformed"},
		{"not an answer", whole(`{"choices":"many"}`), fault.Corrupt, fault.Engine, "malformed"},
		{"content of another kind", whole(`{"choices":[{"message":{"content":{"a":1}}}]}`), fault.Corrupt, fault.Engine,
			"malformed"},
		{"broken chunk", streams(events(`{"choices":[{"text":"a"`)), fault.Corrupt, fault.Engine, "malformed"},
		{"too deep", whole(strings.Repeat("[", 20000)), fault.Corrupt, fault.Engine, "malformed"},
		{"endless tool calls", streams(strings.Repeat(`data: {"choices":[{"delta":{"tool_calls":[`+
			`{"function":{"name":"f"}},{"function":{"name":"g"}}]}}]}`+"\n\n", 600)),
			fault.Corrupt, fault.Engine, "tool calls"},
	})
}

func TestC19TooLongIsRecognizedForEveryServer(t *testing.T) {
	t.Parallel()
	tooLong := func(name string, status int, body string) faulty {
		return faulty{name, sends(status, "application/json", body), fault.Invalid, fault.TooLong, ""}
	}
	check(t, []faulty{
		tooLong("OpenAI", 400,
			`{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error",`+
				`"param":"messages","code":"context_length_exceeded"}}`),
		tooLong("vLLM nested", 400,
			`{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",`+
				`"type":"BadRequestError","param":null,"code":400}}`),
		tooLong("newest vLLM", 400,
			`{"error":{"message":"You passed 12289 input tokens and requested 4096 output tokens. However, the model's `+
				`context length is only 16384 tokens, resulting in a maximum input length of 12288 tokens.",`+
				`"type":"BadRequestError","param":"input_tokens","code":400}}`),
		tooLong("vLLM flat", 400,
			`{"object":"error","message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096.",`+
				`"type":"BadRequestError","param":null,"code":400}`),
		tooLong("vLLM max_tokens", 400,
			`{"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum `+
				`context length is 4096 tokens and your request has 100 input tokens","code":400}`),
		tooLong("SGLang", 400,
			`{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).",`+
				`"type":"BadRequestError","code":400}`),
		tooLong("llama.cpp", 400,
			`{"error":{"code":400,"message":"the request exceeds the available context size",`+
				`"type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}`),
		tooLong("llama.cpp behind a 500", 500, `{"error":{"code":500,"message":"x","type":"exceed_context_size_error"}}`),
		tooLong("TGI", 422,
			"{\"error\":\"Input validation error: `inputs` must have less than 1024 tokens. Given: 2000\","+
				"\"error_type\":\"validation\"}"),
		tooLong("Anthropic", 400, `{"error":{"message":"prompt is too long: 200001 tokens > 200000 maximum"}}`),
		tooLong("in a 200", 200, `{"object":"error","message":"maximum context length is 10","code":400}`),
		tooLong("413", 413, `Request Entity Too Large`),
		{"in a stream", streams(events(`{"error":{"type":"exceed_context_size_error","code":400,"message":"x"}}`)),
			fault.Invalid, fault.TooLong, ""},
		{"a 500 that repeats a prompt with these words",
			sends(500, "application/json",
				`{"error":{"message":"failed on: what is the maximum context length?"}}`), fault.Corrupt, fault.Engine, ""},
		{"a rate limit on tokens",
			sends(429, "application/json",
				`{"error":{"message":"please reduce the length of the messages"}}`), fault.Throttled, "", ""},
	})
}

func TestStatusesAreClassified(t *testing.T) {
	t.Parallel()
	const nested = `{"error":{"message":"what it says","type":"t","code":null}}`
	status := func(status int, kind fault.Kind, class fault.Class) faulty {
		return faulty{http.StatusText(status), sends(status, "application/json", nested), kind, class, "what it says"}
	}
	check(t, []faulty{
		status(400, fault.Invalid, fault.Refused), status(422, fault.Invalid, fault.Refused),
		status(409, fault.Invalid, fault.Refused),
		status(401, fault.Denied, ""), status(402, fault.Denied, ""), status(403, fault.Denied, ""),
		status(408, fault.Throttled, ""), status(425, fault.Throttled, ""), status(429, fault.Throttled, ""),
		status(503, fault.Throttled, ""),
		status(500, fault.Corrupt, fault.Engine), status(502, fault.Corrupt, fault.Engine),
		status(504, fault.Corrupt, fault.Engine), status(424, fault.Corrupt, fault.Engine),
		status(307, fault.Corrupt, fault.Engine),
		{"status in the body", sends(500, "application/json", `{"error":{"message":"bad schema","code":400}}`), fault.Invalid,
			fault.Refused, "status 400: bad schema"},
		{"status in the body as text", sends(400, "application/json", `{"object":"error","message":"busy","code":"503"}`),
			fault.Throttled, "", "busy"},
		{"status in the body of a 503 is ignored",
			sends(503, "application/json",
				`{"error":{"message":"Loading model","code":400}}`), fault.Throttled, "", "Loading model"},
		{"unknown model",
			sends(404, "application/json",
				"{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"code\":404}}"),
			fault.Denied, "", "does not exist. (correct model.uri"},
		{"unknown model, Ollama",
			sends(404, "application/json",
				`{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}`), fault.Denied, "",
			"try pulling"},
		{"unknown model, OpenAI",
			sends(404, "application/json",
				`{"error":{"message":"no access","code":"model_not_found"}}`), fault.Denied, "", "no access"},
		{"unknown model, LiteLLM",
			sends(400, "application/json", `{"error":{"message":{"error":"/chat/completions: Invalid model name passed in `+
				`model=x."},"type":"None","param":"None","code":"400"}}`), fault.Denied, "", "correct model.uri"},
		{"unknown model, OpenRouter",
			sends(400, "application/json", `{"error":{"message":"x is not a valid model ID","code":400}}`), fault.Denied, "",
			"correct model.uri"},
		{"unknown model, DeepSeek",
			sends(400, "application/json", `{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}`),
			fault.Denied, "", "correct model.uri"},
		{"unknown adapter, vLLM",
			sends(404, "application/json", `{"error":{"message":"LoRA adapter x does not exist","type":"NotFoundError",`+
				`"param":null,"code":404}}`), fault.Denied, "", "correct model.uri"},
		{"404 about what the model can't do",
			sends(404, "application/json",
				`{"error":{"message":"This is a chat model","type":"invalid_request_error"}}`), fault.Invalid, fault.Refused,
			"chat model"},
		{"a member under another name",
			sends(400, "application/json", `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with `+
				`this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}`),
			fault.Invalid, fault.Refused, `set request.max_tokens_field = "max_completion_tokens"`},
		{"a member that is added, Mistral",
			sends(422, "application/json", `{"object":"error","message":{"detail":[{"type":"extra_forbidden",`+
				`"loc":["body","seed"],"msg":"Extra inputs are not permitted","input":1}]}}`), fault.Invalid, fault.Refused,
			`leave it out with request.omit = ["seed"]`},
		{"a server that streams nothing",
			sends(400, "application/json", `{"error":{"message":"Your organization must be verified to stream this model.",`+
				`"type":"invalid_request_error","param":"stream","code":"unsupported_value"}}`), fault.Invalid, fault.Refused,
			`set engine.stream = "never"`},
		{"a member that only rows have",
			sends(400, "application/json", `{"error":{"message":"unknown role","param":"messages"}}`), fault.Invalid,
			fault.Refused, "unknown role"},
		{"FastAPI", sends(422, "application/json", `{"detail":[{"loc":["body"],"msg":"field required"}]}`), fault.Invalid,
			fault.Refused, "field required"},
		{"not JSON", sends(500, "text/plain", "oops\x00\x1b[31m\nsecond \xff line"), fault.Corrupt, fault.Engine,
			"oops  [31m second \uFFFD line"},
		{"empty body", sends(500, "text/plain", ""), fault.Corrupt, fault.Engine, "no message"},
		{"not found, in a 200", whole(`{"error":{"message":"nothing here","code":404}}`), fault.Invalid, fault.Refused,
			"status 404: nothing here"},
		{"no such endpoint", sends(404, "text/plain", "404 page not found"), fault.Invalid, fault.Refused,
			"no /chat/completions"},
	})
}

func TestLongMessageIsCut(t *testing.T) {
	t.Parallel()
	_, err := ask(t, serve(t, sends(400, "text/plain", strings.Repeat("ü", 1<<20))), hello)
	if len(err.Error()) > 600 || !strings.HasSuffix(err.Error(), "ü…") {
		t.Errorf("%d bytes: %.80s", len(err.Error()), err)
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	const date = "Fri, 01 Jan 2027 12:00:00 GMT"
	for header, want := range map[string]time.Duration{
		"3": 3 * time.Second, "0.5": 500 * time.Millisecond, "": 0, "-1": 0, "soon": 0, "NaN": 0, "1e300": 24 * time.Hour,
		"Fri, 01 Jan 2027 12:00:07 GMT": 7 * time.Second, "Fri, 01 Jan 2027 11:00:00 GMT": 0,
		"Fri, 01 Jan 2038 11:00:00 GMT": 24 * time.Hour,
	} {
		for _, status := range []int{429, 503} {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", header)
				w.Header().Set("Date", date)
				sends(status, "application/json", `{}`)(w, r)
			})
			if _, err := ask(t, c, hello); !fault.Is(err, fault.Throttled) || fault.RetryAfter(err) != want {
				t.Errorf("%d with %q: retry after %v, %v", status, header, fault.RetryAfter(err), err)
			}
		}
	}
}

func TestBrokenConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	abort := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			h(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	check(t, []faulty{
		{"before the headers", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fault.Unavailable,
			"", "EOF"},
		{"in the stream", abort(streams("data: {\"choices\":[{\"text\":\"a\"}]}\n\n")), fault.Unavailable, "",
			"before the answer did"},
		{"in a line", abort(streams("data: {\"choices\":[{\"te")), fault.Unavailable, "", "before the answer did"},
		{"in a whole answer", abort(whole(`{"choices":[{"te`)), fault.Unavailable, "", "before the answer did"},
	})
	finished := streams("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n")
	a, err := ask(t, serve(t, abort(finished)), hello)
	if err != nil || a.Text != "a" {
		t.Errorf("after the finish reason: %+v, %v", a, err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	chunk := `{"choices":[{"text":"` + strings.Repeat("a", 100) + `"}]}`
	many := make([]string, 50)
	for i := range many {
		many[i] = chunk
	}
	for name, h := range map[string]http.HandlerFunc{
		"a long line":    streams("data: " + strings.Repeat("a", 5000)),
		"many pieces":    streams(events(many...)),
		"a whole answer": whole(`{"choices":[{"text":"` + strings.Repeat("a", 5000) + `"}]}`),
		"endless pings":  streams(strings.Repeat(": ping\n\n", 4096*64/8+8)),
		"endless tool arguments": streams(events(func() []string {
			s := make([]string, 50)
			for i := range s {
				s[i] = `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` +
					strings.Repeat("b", 100) + `"}}]}}]}`
			}
			return s
		}()...)),
	} {
		_, err := ask(t, dial(t, openai.Config{MaxAnswerBytes: 4096}, h), hello)
		if !fault.Is(err, fault.Corrupt) || fault.ClassOf(err) != fault.Engine || !strings.Contains(err.Error(), "larger") {
			t.Errorf("%s: %v (%v)", name, err, fault.KindOf(err))
		}
	}
}

func TestDeadlineIsCanceled(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Answer(ctx, hello, func() {}); !fault.Is(err, fault.Canceled) {
		t.Errorf("%v (%v)", err, fault.KindOf(err))
	}
}

func TestCompletionsAreSentAsChatsIfServerHasNoCompletions(t *testing.T) {
	t.Parallel()
	for _, missing := range []http.HandlerFunc{
		sends(404, "application/json", `{"detail":"Not Found"}`), sends(405, "text/plain", "Method Not Allowed"),
		sends(404, "application/json", `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`),
		sends(404, "application/json", `{"error":{"message":"This is a chat model and not supported in the v1/completions `+
			`endpoint. Did you mean to use v1/chat/completions?","type":"invalid_request_error","param":"model","code":null}}`),
		sends(400, "application/json", `{"error":{"code":"OperationNotSupported","message":"The completion operation does `+
			`not work with the specified model, gpt-35-turbo. Please choose different model and try again."}}`),
		sends(501, "application/json", `{"error":{"message":"The model does not support Completions API",`+
			`"type":"NotImplementedError","param":null,"code":501}}`),
	} {
		var completions atomic.Int64
		var sent atomic.Value
		var log bytes.Buffer
		c := dial(t, openai.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/completions" {
					completions.Add(1)
					missing(w, r)
					return
				}
				b, _ := io.ReadAll(r.Body)
				sent.Store(string(b))
				whole(`{"choices":[{"message":{"content":"a"}}]}`)(w, r)
			})
		for range 5 {
			a, err := ask(t, c, enginetest.CompletionRequest("say \u2028 a", `"logprobs":3`, `"top_k":4`))
			if err != nil || a.Text != "a" {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		want := "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"say \u2028 a\"}],\"logprobs\":true," +
			"\"top_logprobs\":3,\"top_k\":4,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
		if sent.Load() != want || completions.Load() != 3 || strings.Count(log.String(), "answers no completions") != 1 {
			t.Errorf("sent %s\nafter %d tries of /completions; log: %s", sent.Load(), completions.Load(), log.String())
		}
		_, err := ask(t, c, enginetest.CompletionRequest("x", `"prompt":[1,2]`))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "not a string") {
			t.Errorf("token ids: %v", err)
		}
	}
}

// A hint never keeps a server from being ready that answers requests, and never costs a
// question if it says yes or nothing.
func TestReady(t *testing.T) {
	t.Parallel()
	json := func(status int, body string) http.HandlerFunc { return sends(status, "application/json", body) }
	models := whole(`{"object":"list","data":[{"id":"llama","object":"model"},{"id":"lora"}]}`)
	hosted := whole(`{"object":"list","data":[{"id":"gpt","object":"model","owned_by":"openai"}]}`)
	missing := sends(404, "text/plain", "404 page not found")
	refuses := json(404, `{"error":{"message":"The model '' does not exist"}}`)
	loading := json(503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`)
	denies := json(401, `{"error":{"message":"Incorrect API key"}}`)
	dead := json(200, `{"object":"error","message":"EngineCore died"}`)
	for _, c := range []struct {
		name                     string
		health, models, question http.HandlerFunc
		asked                    string // m, h and q: in their order
		model                    string
		kind                     fault.Kind // Internal: no error
	}{
		{"up", whole(``), models, nil, "mh", "llama", 0},
		{"no /health", missing, models, nil, "mh", "llama", 0},
		{"no /models", whole(``), missing, nil, "mh", "", 0},
		{"neither", missing, missing, nil, "mh", "", 0},
		{"redirected /health", json(301, ``), models, nil, "mh", "llama", 0},
		{"an empty list", whole(``), whole(`{"data":[]}`), nil, "mh", "", 0},
		{"null as list", whole(``), whole(`{"data":null}`), nil, "mh", "", 0},
		{"a list of another shape", whole(``), whole(`[{"id":"m"}]`), nil, "mh", "", 0},
		{"a page as list", whole(``), whole(`<html>`), nil, "mh", "", 0},
		{"a hosted API", loading, hosted, nil, "m", "gpt", 0},

		{"loading", loading, models, loading, "mhq", "llama", fault.Unavailable},
		{"loading by /health alone", loading, models, refuses, "mhq", "llama", 0},
		{"a dead engine", loading, models, dead, "mhq", "llama", fault.Unavailable},
		{"a dead engine behind 500", json(500, ``), models, json(500, ``), "mhq", "llama", fault.Unavailable},
		{"full", json(429, ``), models, json(429, ``), "mhq", "llama", fault.Unavailable},
		{"/health behind another login", denies, models, whole(`{"choices":[]}`), "mhq", "llama", 0},
		{"/models is not allowed", whole(``), json(403, `{}`), refuses, "mq", "", 0},
		{"/models fails", whole(``), json(500, `x`), refuses, "mq", "", 0},
		{"a wrong key", whole(``), denies, denies, "mq", "", fault.Denied},
	} {
		var asked []byte
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/health":
				asked = append(asked, 'h')
				c.health(w, r)
			case "/v1/models":
				asked = append(asked, 'm')
				c.models(w, r)
			default:
				asked = append(asked, 'q')
				c.question(w, r)
			}
		})
		got, err := client.Ready(t.Context())
		if got != c.model || (err != nil || c.kind != 0) && !fault.Is(err, c.kind) || string(asked) != c.asked {
			t.Errorf("%s: %q, %v after %s; want %q after %s", c.name, got, err, asked, c.model, c.asked)
		}
		if listed := client.Models(); c.model == "llama" && !slices.Equal(listed, []string{"llama", "lora"}) {
			t.Errorf("%s: listed %v", c.name, listed)
		}
	}
}

// Names that a server lists for one model are aliases of each other.
func TestListedAliases(t *testing.T) {
	t.Parallel()
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		whole(`{"data":[{"id":"a","root":"/models/m"},{"id":"b","root":"/models/m"},{"id":"lora","root":"/l","parent":"a"},`+
			`{"id":"c"},{"id":"d"}]}`)(w, r)
	})
	if client.IsAlias("a", "b") {
		t.Error("an alias before any list")
	}
	if _, err := client.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for pair, want := range map[[2]string]bool{{"a", "b"}: true, {"b", "a"}: true, {"a", "/models/m"}: true,
		{"a", "lora"}: false, {"c", "d"}: false, {"x", "y"}: false, {"a", "x"}: false} {
		if client.IsAlias(pair[0], pair[1]) != want {
			t.Errorf("%s: want %v", pair, want)
		}
	}
}

func TestReadyAsksAsConfigured(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ready string
		says  int    // the status of all that is asked
		asked string // paths
		kind  fault.Kind
	}{
		{openai.ReadyNone, 503, "", 0},
		{"/health/readiness", 200, "/health/readiness /v1/models", 0},
		{"/health/readiness", 404, "/health/readiness", fault.Unavailable},
		{"/health/readiness", 503, "/health/readiness", fault.Unavailable},
	} {
		var asked []string
		client := dial(t, openai.Config{Ready: c.ready}, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			w.WriteHeader(c.says)
		})
		_, err := client.Ready(t.Context())
		if (err != nil || c.kind != 0) && !fault.Is(err, c.kind) || strings.Join(asked, " ") != c.asked {
			t.Errorf("%s that says %d: %v after %v", c.ready, c.says, err, asked)
		}
	}
}

// One 404 of a server that answers completions changes nothing for later requests.
func TestCompletionsStayCompletionsOnceAnswered(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string][]int64{"the first": {1}, "a later one": {2}, "one in two": {2, 4, 6, 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var completions, chats atomic.Int64
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != "/v1/completions":
					chats.Add(1)
					whole(`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`)(w, r)
				case slices.Contains(missing, completions.Add(1)):
					sends(404, "application/json", `{"detail":"Not Found"}`)(w, r)
				default:
					whole(`{"choices":[{"text":"a","finish_reason":"stop"}]}`)(w, r)
				}
			})
			for n := range int64(10) {
				_, err := ask(t, c, enginetest.CompletionRequest("x"))
				var status *engine.StatusError
				if slices.Contains(missing, n+1) && n > 0 && !(errors.As(err, &status) && status.Status == 404) {
					t.Errorf("request %d: %v, want a 404", n+1, err)
				}
			}
			if completions.Load() != 10 || chats.Load() > 1 {
				t.Errorf("%d completions and %d chats", completions.Load(), chats.Load())
			}
		})
	}
}

// A gateway has models of both kinds: each request goes where its model answers.
func TestOneModelThatOnlyChatsDoesNotChangeTheOthers(t *testing.T) {
	t.Parallel()
	var completions, chats atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		onlyChats := strings.Contains(string(b), "chatty")
		switch {
		case r.URL.Path != "/v1/completions":
			chats.Add(1)
			whole(`{"choices":[{"message":{"content":"chat"},"finish_reason":"stop"}]}`)(w, r)
		case onlyChats:
			sends(404, "application/json", `{"error":{"message":"This is a chat model and not supported in the `+
				`v1/completions endpoint.","param":"model","code":null}}`)(w, r)
		default:
			completions.Add(1)
			whole(`{"choices":[{"text":"completion","finish_reason":"stop"}]}`)(w, r)
		}
	})
	for range 5 {
		for _, q := range []struct{ prompt, want string }{{"x", "completion"}, {"chatty", "chat"}} {
			if a, err := ask(t, c, enginetest.CompletionRequest(q.prompt)); err != nil || a.Text != q.want {
				t.Errorf("%s: %q, %v, want %q", q.prompt, a.Text, err, q.want)
			}
		}
	}
	if completions.Load() != 5 || chats.Load() != 5 {
		t.Errorf("%d completions and %d chats", completions.Load(), chats.Load())
	}
}

// A fault says whether the server named the prompt as its cause, or a member.
func TestCausesAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   engine.StatusError
	}{
		{400, `{"error":{"message":"no","code":"context_length_exceeded"}}`, engine.StatusError{Status: 400, Named: true}},
		{403, `{"error":{"message":"no","code":"content_policy_violation"}}`, engine.StatusError{Status: 403, Named: true}},
		{400, `{"error":{"message":"no","code":"content_filter","param":"prompt"}}`,
			engine.StatusError{Status: 400, Named: true, Param: "prompt"}},
		{403, `{"error":{"message":"input flagged by moderation"}}`, engine.StatusError{Status: 403}},
		{413, `Request Entity Too Large`, engine.StatusError{Status: 413}},
		{400, `{"error":{"message":"no","param":"logit_bias"}}`, engine.StatusError{Status: 400, Param: "logit_bias"}},
		{422, `{"detail":[{"loc":["body","top_k"],"msg":"extra"}]}`, engine.StatusError{Status: 422, Param: "top_k"}},
		{422, `{"detail":[{"loc":["header","x"],"msg":"extra"}]}`, engine.StatusError{Status: 422}},
		{429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`,
			engine.StatusError{Status: 429, Quota: true}},
		{429, `{"error":{"message":"slow down"}}`, engine.StatusError{Status: 429}},
		{404, `404 page not found`, engine.StatusError{Status: 404}},
	} {
		_, err := ask(t, serve(t, sends(c.status, "application/json", c.body)), hello)
		var got *engine.StatusError
		if !errors.As(err, &got) {
			t.Errorf("%d %s: %v", c.status, c.body, err)
			continue
		}
		bare := *got
		bare.Err, bare.RateLimit = nil, ratelimit.Report{} // which has a test of its own
		if bare != c.want {
			t.Errorf("%d %s: %+v, want %+v", c.status, c.body, bare, c.want)
		}
	}
}

func TestBadBaseURLsAreRefusedWithoutPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "localhost:8000", "ftp://x", "http://", "http://u:sesame@h/%zz",
		"http://h/v1?key=sesame", "http://h/#sesame"} {
		_, err := openai.New(openai.Config{BaseURL: url, Logger: slog.New(slog.DiscardHandler)})
		if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: %v", url, err)
		}
	}
}
