package openai_test

import (
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/fault"
)

// FuzzAnswers feeds servers' bytes to the client: whatever they are, there is a
// classified fault or an answer that any encoder takes.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		events(`{"choices":[{"delta":{"content":"a\\ud83d"},"logprobs":{"content":[{"logprob":NaN}]},"finish_reason":"stop"}]}`),
		events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`, `{"error":{"code":429}}`),
		`{"choices":[{"message":{"content":"hi","tool_calls":[{"a":1}]},"finish_reason":null}],"usage":{"prompt_tokens":1}}`,
		`{"object":"error","message":"maximum context length","code":"400"}`, "error: {}\n\ndata: [DONE]",
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
				if k := fault.Of(err); k == fault.Internal || k == fault.Canceled || !utf8.ValidString(err.Error()) {
					t.Errorf("%v: %q", k, err)
				}
				continue
			}
			if !utf8.ValidString(a.Text) || !utf8.ValidString(a.Reasoning) || !utf8.ValidString(a.FinishReason) || !utf8.ValidString(a.Model) {
				t.Errorf("not UTF-8: %+v", a)
			}
			for _, raw := range [][]byte{a.ToolCalls, a.Logprobs} {
				if raw != nil && !jsontext.Value(raw).IsValid() {
					t.Errorf("not JSON: %s", raw)
				}
			}
		}
	})
}
