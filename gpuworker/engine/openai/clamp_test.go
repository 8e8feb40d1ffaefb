package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/fault"
)

const answered = `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`

// refuser is a server that refuses requests for 5000 tokens, and records all.
type refuser struct {
	refusal  string
	tokenize http.HandlerFunc // nil: 404

	mu   sync.Mutex
	sent []string
}

func (f *refuser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/tokenize" {
		if f.tokenize == nil {
			w.WriteHeader(404)
			return
		}
		f.tokenize(w, r)
		return
	}
	f.mu.Lock()
	f.sent = append(f.sent, strings.Replace(string(body), `,"stream":true,"stream_options":{"include_usage":true}`, "", 1))
	f.mu.Unlock()
	if strings.Contains(string(body), ":5000") {
		sends(400, "application/json", f.refusal)(w, r)
		return
	}
	whole(answered)(w, r)
}

func TestC19MaxTokensIsLoweredIfClamped(t *testing.T) {
	t.Parallel()
	body := func(message string) string { return fmt.Sprintf(`{"error":{"message":%q,"code":400}}`, message) }
	counts := whole(`{"count":1900,"max_model_len":4096,"tokens":[1,2]}`)
	for _, c := range []struct {
		name, message string
		tokenize      http.HandlerFunc
		want          int64 // 0: the fault too_long stays
	}{
		{"vLLM", "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 " +
			"tokens and your request has 2778 input tokens (5000 > 4096 - 2778).", nil, 1318},
		{"older vLLM, OpenAI",
			"This model's maximum context length is 4097 tokens. However, you requested 6360 tokens (1360 in the messages, " +
				"5000 in the completion). Please reduce the length of the messages or completion.", nil, 2737},
		{"llama-cpp-python",
			"This model's maximum context length is 512 tokens, however you requested 5100 tokens (100 in your prompt; 5000 " +
				"for the completion). Please reduce your prompt; or completion length.", nil, 412},
		{"SGLang, no room",
			"Requested token count exceeds the model's maximum context length of 64000 tokens. You requested a total of 71897 " +
				"tokens: 7897 tokens from the input messages and 5000 tokens for the completion. Please reduce", nil, 0},
		{"SGLang",
			"Requested token count exceeds the model's maximum context length of 8000 tokens. You requested a total of 12897 " +
				"tokens: 7897 tokens from the input messages and 5000 tokens for the completion.", nil, 102},
		{"TGI", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens " +
			"and 5000 `max_new_tokens`", nil, 1096},
		{"newer vLLM, prompt not counted",
			"This model's maximum context length is 4096 tokens. However, you requested 5000 output tokens and your prompt " +
				"contains at least 1 input tokens, for a total of at least 5001 tokens.", counts, 2196},
		{"newer vLLM, prompt not counted, no /tokenize",
			"This model's maximum context length is 4096 tokens. However, you requested 5000 output tokens and your prompt " +
				"contains at least 1 input tokens, for a total of at least 5001 tokens.", nil, 0},
		{"newer vLLM, prompt counted",
			"This model's maximum context length is 4096 tokens. However, you requested 5000 output tokens and your prompt " +
				"contains 96 input tokens, for a total of 5096 tokens.", nil, 4000},
		{"newest vLLM, prompt cut before it is counted",
			"You passed 1 input tokens and requested 5000 output tokens. However, the model's context length is only 4096 " +
				"tokens, resulting in a maximum input length of 0 tokens. Please reduce the length of the input prompt. " +
				"(parameter=input_tokens, value=1)", counts, 2196},
		{"no room", "This model's maximum context length is 4096 tokens and your request has 4096 input tokens", nil, 0},
		{"no numbers", "This model's maximum context length is exceeded", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &refuser{refusal: body(c.message), tokenize: c.tokenize}
			a, err := ask(t, dial(t, openai.Config{ClampMaxTokens: true}, s.ServeHTTP),
				enginetest.ChatRequest("x", `"max_tokens":5000`, `"seed":1`))
			if c.want == 0 {
				if fault.ClassOf(err) != fault.TooLong || len(s.sent) != 1 {
					t.Errorf("%+v, %v after %d requests", a, err, len(s.sent))
				}
				return
			}
			if err != nil || a.Text != "hi" || a.MaxTokens != c.want {
				t.Fatalf("%+v, %v", a, err)
			}
			if want := strings.Replace(s.sent[0], "5000", fmt.Sprint(c.want), 1); s.sent[1] != want {
				t.Errorf("second request is %s, want %s", s.sent[1], want)
			}
		})
	}
}

func TestMaxTokensIsNotLoweredUnlessClamped(t *testing.T) {
	t.Parallel()
	refusal := `{"message":"This model's maximum context length is 4096 tokens and your request has 96 input tokens"}`
	s := &refuser{refusal: refusal}
	a, err := ask(t, serve(t, s.ServeHTTP), enginetest.ChatRequest("x", `"max_tokens":5000`))
	if fault.ClassOf(err) != fault.TooLong || len(s.sent) != 1 {
		t.Errorf("%+v, %v after %d requests", a, err, len(s.sent))
	}
	fits := enginetest.ChatRequest("x", `"max_tokens":5000`)
	fits.FitMaxTokens = true // the number is our default
	own := &refuser{refusal: refusal}
	if a, err = ask(t, serve(t, own.ServeHTTP), fits); err != nil || a.MaxTokens != 4000 {
		t.Errorf("%+v, %v", a, err)
	}
	both := &refuser{refusal: refusal}
	a, err = ask(t, dial(t, openai.Config{ClampMaxTokens: true}, both.ServeHTTP),
		enginetest.ChatRequest("x", `"max_tokens":100`, `"max_completion_tokens":5000`))
	const want = `"max_tokens":100,"max_completion_tokens":4000}`
	if err != nil || a.MaxTokens != 4000 || !strings.Contains(both.sent[1], want) {
		t.Errorf("%+v, %v: %s", a, err, both.sent)
	}
}
