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

func TestC23WhiteSpaceIsNoAnswerWhereAShapeWasAskedFor(t *testing.T) {
	t.Parallel()
	blank := whole(`{"choices":[{"message":{"content":" \n\t\n "},"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}`)
	for _, c := range []struct {
		name   string
		server http.HandlerFunc
		extra  string
		want   bool
	}{
		{"JSON mode", blank, `"response_format":{"type":"json_object"}`, true},
		{"a schema with a text in it", blank, `"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"text":{}}}}}`, true},
		{"guided by vLLM", blank, `"guided_regex":"a+"`, true},
		{"guided by newer vLLM", blank, `"structured_outputs":{"json":{}}`, true},
		{"no shape", blank, `"seed":1`, false},
		{"text", blank, `"response_format":{"type":"text"}`, false},
		{"null", blank, `"response_format":null,"guided_json":null`, false},
		{"it stopped by itself", whole(`{"choices":[{"message":{"content":"  "},"finish_reason":"stop"}]}`), `"response_format":{"type":"json_object"}`, false},
		{"some JSON", whole(`{"choices":[{"message":{"content":"  {"},"finish_reason":"length"}]}`), `"response_format":{"type":"json_object"}`, false},
		{"nothing at all", whole(`{"choices":[{"message":{"content":""},"finish_reason":"length"}]}`), `"response_format":{"type":"json_object"}`, false},
	} {
		a, err := ask(t, serve(t, c.server), enginetest.ChatRequest("x", c.extra))
		if got := errors.Is(err, engine.ErrWhitespace); got != c.want || !got && err != nil {
			t.Errorf("%s: %+v, %v", c.name, a, err)
		}
		if c.want && (!fault.Is(err, fault.Corrupt) || fault.ClassOf(err) != fault.Engine || engine.UsageOf(err) != engine.Usage{PromptTokens: 5, CompletionTokens: 7}) {
			t.Errorf("%s: %v, class %s, spent %+v", c.name, err, fault.ClassOf(err), engine.UsageOf(err))
		}
	}
}

// TestC23AnEndlessBlankIsCutOff streams white space until the client leaves.
func TestC23AnEndlessBlankIsCutOff(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string][]string{"from the start": nil, "amid the answer": {"{\\n  ", `\"answer\":`}} {
		left := make(chan struct{})
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			defer close(left)
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
			t.Errorf("%s: %d pieces were taken", name, n)
		}
		<-left
	}
}

// TestC23WhiteSpaceWithinAnAnswerIsItsOwn has much of it, but never on end.
func TestC23WhiteSpaceWithinAnAnswerIsItsOwn(t *testing.T) {
	t.Parallel()
	var pieces []string
	for range 20 {
		pieces = append(pieces, `{"choices":[{"delta":{"content":"[\n`+strings.Repeat(" ", 1000)+`"}}]}`, `{"choices":[{"delta":{"content":" ]"}}]}`)
	}
	a, err := ask(t, serve(t, streams(events(append(pieces, `{"choices":[{"delta":{},"finish_reason":"length"}]}`)...))),
		enginetest.ChatRequest("x", `"response_format":{"type":"json_object"}`))
	if err != nil || len(a.Text) != 20*1004 {
		t.Errorf("%d bytes, %v", len(a.Text), err)
	}
}

func TestFaultsSayWhatTheyCost(t *testing.T) {
	t.Parallel()
	piece := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	usage := "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":40}}\n\ndata: [DONE]\n\n"
	for name, c := range map[string]struct {
		server http.HandlerFunc
		want   engine.Usage
	}{
		"refused":            {sends(400, "text/plain", "no"), engine.Usage{}},
		"broken off":         {streams(strings.Repeat(piece, 3)), engine.Usage{CompletionTokens: 3}},
		"given up, with use": {streams(piece + usage), engine.Usage{PromptTokens: 9, CompletionTokens: 40}},
		"an error amid it":   {streams(strings.Repeat(piece, 2) + "data: {\"error\":{\"code\":500}}\n\n"), engine.Usage{CompletionTokens: 2}},
	} {
		if _, err := ask(t, serve(t, c.server), hello); err == nil || engine.UsageOf(err) != c.want {
			t.Errorf("%s: %v cost %+v, want %+v", name, err, engine.UsageOf(err), c.want)
		}
	}
	if got := engine.UsageOf(fmt.Errorf("another")); got != (engine.Usage{}) {
		t.Errorf("another error cost %+v", got)
	}
}
