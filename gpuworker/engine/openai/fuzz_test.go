package openai_test

import (
	"net/http"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/fault"
)

// FuzzAnswers feeds arbitrary bytes of a server to the client. The result must be a
// classified fault, or an answer that every decoder accepts.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		events(`{"choices":[{"delta":{"content":"a\\ud83d"},"logprobs":{"content":[{"logprob":NaN}]},` +
			`"finish_reason":"stop"}]}`),
		events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`,
			`{"error":{"code":429}}`),
		`{"choices":[{"message":{"content":"hi","tool_calls":[{"a":1}]},"finish_reason":null}],"usage":{"prompt_tokens":1}}`,
		`{"object":"error","message":"maximum context length","code":"400"}`, "error: {}\n\ndata: [DONE]",
		`{"x":{"y":[1]},"choices":[{"z":[{"index":0,"text":"a"}],"message":{"content":[{"type":"text","text":"a"},` +
			`{"type":"x"}],"refusal":"b","reasoning":"c"},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":1.0,"details":{"\u0061":1}}}`,
		"\xEF\xBB\xBFdata: {\"choices\":\rdata: [{\"text\":\"a\"}]}\r\r\n" +
			"[{\"choices\":[{\"index\":1,\"text\":\"b\"}]}]\n{\n}",
	} {
		f.Add(200, true, []byte(s))
		f.Add(200, false, []byte(s))
		f.Add(404, false, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, stream bool, body []byte) {
		media := map[bool]string{true: "text/event-stream", false: "application/json"}[stream]
		c, err := openai.New(openai.Config{BaseURL: "http://h", MaxAnswerBytes: 1 << 12,
			HTTPClient: &http.Client{Transport: canned{status, media, body}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []engine.Endpoint{engine.Chat, engine.Completion} {
			a, err := c.Answer(t.Context(), engine.Request{Endpoint: e, Body: []byte(`{"prompt":"x"}`)}, func() {})
			if err != nil {
				if k := fault.KindOf(err); k == fault.Internal || k == fault.Canceled || !utf8.ValidString(err.Error()) {
					t.Errorf("%v: %q", k, err)
				}
				continue
			}
			if !utf8.ValidString(a.Text) || !utf8.ValidString(a.Reasoning) ||
				!utf8.ValidString(a.FinishReason) || !utf8.ValidString(a.Model) {
				t.Errorf("not UTF-8: %+v", a)
			}
			for _, raw := range [][]byte{a.ToolCalls, a.Logprobs, a.Rest.Message, a.Rest.Choice, a.Rest.Usage, a.Rest.Body} {
				if raw != nil && !jsontext.Value(raw).IsValid() {
					t.Errorf("not JSON: %s", raw)
				}
			}
		}
	})
}

// FuzzReady feeds arbitrary bytes of a server to Ready, and arbitrary retry hints to
// Answer.
func FuzzReady(f *testing.F) {
	f.Add(200, "1", []byte(`{"object":"list","data":[{"id":"llama"}]}`))
	f.Add(503, "Fri, 01 Jan 2027 12:00:07 GMT", []byte(`{"error":{"message":"Loading model"}}`))
	f.Add(429, "1e300", []byte(`{"data":[{"id":5}]}`))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		transport := hinting{canned{status, "application/json", body}, after}
		c, err := openai.New(openai.Config{BaseURL: "http://h", HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		model, err := c.Ready(t.Context())
		if !utf8.ValidString(model) || len(model) > 1024 {
			t.Errorf("the model's name is %q", model)
		}
		if err != nil {
			if k := fault.KindOf(err); k != fault.Unavailable && k != fault.Denied || !utf8.ValidString(err.Error()) {
				t.Errorf("%v: %q", k, err)
			}
		}
		_, err = c.Answer(t.Context(), engine.Request{Endpoint: engine.Chat, Body: []byte(`{}`)}, func() {})
		if wait := fault.RetryAfter(err); wait < 0 || wait > 24*time.Hour {
			t.Errorf("retry after %v", wait)
		}
	})
}

// hinting adds a Retry-After header.
type hinting struct {
	canned
	after string
}

func (h hinting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := h.canned.RoundTrip(r)
	if err == nil {
		resp.Header.Set("Retry-After", h.after)
		resp.Header.Set("Date", "Fri, 01 Jan 2027 12:00:00 GMT")
	}
	return resp, err
}
