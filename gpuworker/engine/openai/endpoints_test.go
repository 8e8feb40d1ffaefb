package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

const wholeResponse = `{"id":"resp_1","created_at":1,"object":"response","status":"completed","error":null,` +
	`"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","content":` +
	`[{"type":"output_text","text":"fo"},{"type":"output_text","text":"ur"}]}],"usage":{"input_tokens":3,` +
	`"output_tokens":5}}`

func TestEndpointsWithoutChoicesAreAnswered(t *testing.T) {
	t.Parallel()
	response := engine.Answer{Text: "four", Reasoning: "hm", FinishReason: "stop",
		Usage: engine.Usage{PromptTokens: 3, CompletionTokens: 5},
		Rest: engine.Rest{Body: json.RawMessage(`{"object":"response",` +
			`"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","content":` +
			`[{"type":"output_text","text":"fo"},{"type":"output_text","text":"ur"}]}],"status":"completed",` +
			`"usage":{"input_tokens":3,"output_tokens":5}}`)}}
	cut := response
	cut.FinishReason = "length"
	cut.Rest.Body = json.RawMessage(strings.NewReplacer(`{"object"`,
		`{"incomplete_details":{"reason":"max_output_tokens"},"object"`,
		"completed", "incomplete").Replace(string(response.Rest.Body)))
	event := func(kind, response string) string {
		return `{"type":"response.` + kind + `","response":` + response + `}`
	}
	for _, c := range []struct {
		name     string
		endpoint engine.Endpoint
		path     string
		server   http.HandlerFunc
		asked    string // path and members of streams
		want     engine.Answer
		says     string
	}{
		{"embeddings", engine.Embeddings, "", whole(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":` +
			`[1.50,-2e-3]}],"model":"e","usage":{"prompt_tokens":3,"total_tokens":3}}`), `/v1/embeddings {}`,
			engine.Answer{Model: "e", Usage: engine.Usage{PromptTokens: 3}, Rest: engine.Rest{Body: json.RawMessage(`{"data":` +
				`[{"object":"embedding","index":0,"embedding":[1.50,-2e-3]}],"model":"e","object":"list",` +
				`"usage":{"prompt_tokens":3,"total_tokens":3}}`)}}, ""},
		{"rerank", engine.Rerank, "",
			whole(`{"id":"r","results":[{"index":1,"relevance_score":0.5}],"usage":{"total_tokens":7}}`),
			`/v1/rerank {}`, engine.Answer{Usage: engine.Usage{PromptTokens: 7}, Rest: engine.Rest{Body: json.RawMessage(
				`{"results":[{"index":1,"relevance_score":0.5}],"usage":{"total_tokens":7}}`)}}, ""},
		{"a path", engine.Completion, "/generate", whole(`{"generated_text":"x"}`),
			`/generate {"stream":true,"stream_options":{"include_usage":true}}`, engine.Answer{
				Usage: engine.Usage{Unknown: true}, Rest: engine.Rest{Body: json.RawMessage(`{"generated_text":"x"}`)}}, ""},
		{"a path with choices", engine.Chat, "/x/chat",
			whole(`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`),
			`/x/chat {"stream":true,"stream_options":{"include_usage":true}}`, engine.Answer{Text: "x", FinishReason: "stop",
				Usage: engine.Usage{CompletionTokens: 1, Unknown: true}}, ""},
		{"a list of scores", engine.Rerank, "/rerank", whole(`[{"index":0,"score":0.5}]`), `/rerank {}`, engine.Answer{
			Usage: engine.Usage{Unknown: true},
			Rest:  engine.Rest{Body: json.RawMessage(`{"data":[{"index":0,"score":0.5}]}`)}}, ""},
		{"a whole response", engine.Responses, "", whole(wholeResponse), `/v1/responses {"stream":true}`, response, ""},
		{"a streamed response", engine.Responses, "", streams("data: " + strings.Join([]string{
			event("created", `{"status":"in_progress"}`), `{"type":"response.output_text.delta","delta":"four"}`,
			event("completed", wholeResponse)}, "\n\ndata: ") + "\n\n"), `/v1/responses {"stream":true}`, response, ""},
		{"a response that was cut at its length", engine.Responses, "", streams("data: " + event("incomplete",
			strings.NewReplacer(
				"completed", "incomplete", `"error":null`,
				`"incomplete_details":{"reason":"max_output_tokens"}`).Replace(wholeResponse)) +
			"\n\n"), `/v1/responses {"stream":true}`, cut, ""},
		{"a stream of a response that breaks", engine.Responses, "", streams("data: " +
			`{"type":"response.output_text.delta","delta":"fo"}` + "\n\n"), `/v1/responses {"stream":true}`, engine.Answer{},
			"without a finish reason"},
		{"a response that failed", engine.Responses, "", whole(`{"status":"failed","error":{"message":"boom"}}`),
			`/v1/responses {"stream":true}`, engine.Answer{}, "boom"},
		{"nothing", engine.Embeddings, "", whole(`{"object":"list","data":[]}`), `/v1/embeddings {}`, engine.Answer{},
			"no choices"},
		{"no such endpoint", engine.Score, "", sends(404, "text/plain", "404 page not found"), `/v1/score {}`,
			engine.Answer{},
			"no such endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asked := ""
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				asked = r.URL.Path + " " + string(b)
				c.server(w, r)
			})
			got, err := ask(t, client, engine.Request{Endpoint: c.endpoint, Path: c.path, Body: []byte(`{}`)})
			if asked != c.asked {
				t.Errorf("asked %s, want %s", asked, c.asked)
			}
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestHeadersQueryAndOptionsAreSent(t *testing.T) {
	t.Parallel()
	var asked *http.Request
	var body string
	c := dial(t, openai.Config{Header: map[string]secret.Value{"Api-Key": secret.NewValue("sesame-sesame\n")},
		Query: url.Values{"api-version": {"2024-06"}}}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked, body = r, string(b)
		sends(400, "application/json", `{"error":{"message":"no: sesame-sesame"}}`)(w, r)
	})
	for _, o := range []*engine.Options{nil, {Header: http.Header{"X-Team": {"a"}}, Query: url.Values{"q": {"1 2"}},
		Whole: true}} {
		r := hello
		r.Options = o
		_, err := ask(t, c, r)
		if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%v", err)
		}
		query, team := "api-version=2024-06", ""
		if o != nil {
			query, team = query+"&q=1+2", "a"
		}
		h := asked.Header
		if asked.URL.RawQuery != query || h.Get("Api-Key") != "sesame-sesame" || h.Get("X-Team") != team ||
			strings.Contains(body, "stream") != (o == nil) {
			t.Errorf("asked %s with %v and %s", asked.URL, asked.Header, body)
		}
	}
	if _, err := c.Ready(t.Context()); err != nil || asked.URL.RawQuery != "api-version=2024-06" {
		t.Errorf("ready asks %s, %v", asked.URL, err)
	}
}
