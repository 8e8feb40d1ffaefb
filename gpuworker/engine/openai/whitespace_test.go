package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/shared/fault"
)

func TestC23WhitespaceIsFaultIfRequestSetsShape(t *testing.T) {
	t.Parallel()
	blank := whole(`{"choices":[{"message":{"content":" \n\t\n "},"finish_reason":"length"}],` +
		`"usage":{"prompt_tokens":5,"completion_tokens":7}}`)
	answer := func(content, finish string) http.HandlerFunc {
		return whole(`{"choices":[{"message":{"content":"` + content + `"},"finish_reason":"` + finish + `"}]}`)
	}
	const jsonMode = `"response_format":{"type":"json_object"}`
	for _, c := range []struct {
		name   string
		server http.HandlerFunc
		extra  string
		want   bool
	}{
		{"JSON mode", blank, jsonMode, true},
		{"schema with a member text", blank,
			`"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"text":{}}}}}`, true},
		{"guided, vLLM", blank, `"guided_regex":"a+"`, true},
		{"guided, newer vLLM", blank, `"structured_outputs":{"json":{}}`, true},
		{"no shape", blank, `"seed":1`, false},
		{"shape text", blank, `"response_format":{"type":"text"}`, false},
		{"shape null", blank, `"response_format":null,"guided_json":null`, false},
		{"model stopped", answer("  ", "stop"), jsonMode, false},
		{"some JSON", answer("  {", "length"), jsonMode, false},
		{"empty answer", answer("", "length"), jsonMode, false},
	} {
		a, err := ask(t, serve(t, c.server), enginetest.ChatRequest("x", c.extra))
		if got := errors.Is(err, engine.ErrWhitespace); got != c.want || !got && err != nil {
			t.Errorf("%s: %+v, %v", c.name, a, err)
		}
		spent := engine.Usage{PromptTokens: 5, CompletionTokens: 7}
		if c.want && (!fault.Is(err, fault.Corrupt) || fault.ClassOf(err) != fault.Engine || engine.UsageOf(err) != spent) {
			t.Errorf("%s: %v, class %s, usage %+v", c.name, err, fault.ClassOf(err), engine.UsageOf(err))
		}
	}
}

// The server streams white space until the client cancels.
func TestC23EndlessWhitespaceIsCutOff(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string][]string{"from the start": nil, "within the answer": {"{\\n  ", `\"answer\":`}} {
		cancelled := make(chan struct{})
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			defer close(cancelled)
			w.Header().Set("Content-Type", "text/event-stream")
			for n := 0; r.Context().Err() == nil; n++ {
				piece := `\n   `
				if n < len(begin) {
					piece = begin[n]
				}
				if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}\n\n", piece); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
			}
		})
		_, err := ask(t, c, enginetest.ChatRequest("x", `"response_format":{"type":"json_object"}`))
		if !errors.Is(err, engine.ErrWhitespace) {
			t.Fatalf("%s: %v", name, err)
		}
		if n := engine.UsageOf(err).CompletionTokens; n != int64(len(begin)+1024/4+1) {
			t.Errorf("%s: %d pieces were read", name, n)
		}
		<-cancelled
	}
}

// The answer has much white space, but never more than the bound in a row.
func TestC23WhitespaceWithinAnswerIsAllowed(t *testing.T) {
	t.Parallel()
	var pieces []string
	for range 20 {
		pieces = append(pieces, `{"choices":[{"delta":{"content":"[\n`+strings.Repeat(" ", 1000)+`"}}]}`,
			`{"choices":[{"delta":{"content":" ]"}}]}`)
	}
	pieces = append(pieces, `{"choices":[{"delta":{},"finish_reason":"length"}]}`)
	a, err := ask(t, serve(t, streams(events(pieces...))),
		enginetest.ChatRequest("x", `"response_format":{"type":"json_object"}`))
	if err != nil || len(a.Text) != 20*1004 {
		t.Errorf("%d bytes, %v", len(a.Text), err)
	}
}

func TestFaultsHaveUsage(t *testing.T) {
	t.Parallel()
	piece := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	aborted := events(`{"choices":[{"delta":{},"finish_reason":"abort"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":40}}`)
	for name, c := range map[string]struct {
		server http.HandlerFunc
		want   engine.Usage
	}{
		"refused":             {sends(400, "text/plain", "no"), engine.Usage{}},
		"connection broken":   {streams(strings.Repeat(piece, 3)), engine.Usage{CompletionTokens: 3}},
		"aborted, with usage": {streams(piece + aborted), engine.Usage{PromptTokens: 9, CompletionTokens: 40}},
		"error in the stream": {streams(strings.Repeat(piece, 2) + "data: {\"error\":{\"code\":500}}\n\n"),
			engine.Usage{CompletionTokens: 2}},
	} {
		if _, err := ask(t, serve(t, c.server), hello); err == nil || engine.UsageOf(err) != c.want {
			t.Errorf("%s: %v cost %+v, want %+v", name, err, engine.UsageOf(err), c.want)
		}
	}
	if got := engine.UsageOf(fmt.Errorf("other")); got != (engine.Usage{}) {
		t.Errorf("an error without usage has %+v", got)
	}
}
