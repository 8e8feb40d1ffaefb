package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
)

// delta returns a piece of a chat.
func delta(d string) string { return `{"choices":[{"delta":` + d + `}]}` }

// lastDelta returns a piece with a finish reason.
func lastDelta(d, finish string) string {
	return `{"choices":[{"delta":` + d + `,"finish_reason":"` + finish + `"}]}`
}

// beside returns a piece with the message so far beside it.
func beside(d, message string) string {
	return `{"choices":[{"delta":` + d + `,"message":` + message + `}]}`
}

// What a server sends is kept, and is the same whether it came whole or in pieces.
func TestEveryMemberIsKeptTheSameStreamedAndWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, whole string
		pieces      []string
		want        engine.Answer
	}{
		{
			name:  "refusal",
			whole: `{"choices":[{"message":{"role":"assistant","content":null,"refusal":"I can't."},"finish_reason":"stop"}]}`,
			pieces: []string{delta(`{"role":"assistant","content":null,"refusal":""}`),
				delta(`{"refusal":"I can"}`), lastDelta(`{"refusal":"'t."}`, "stop")},
			want: engine.Answer{FinishReason: "stop", Rest: engine.Rest{Message: []byte(`{"refusal":"I can't."}`)}},
		},
		{
			name: "annotations and audio",
			whole: `{"choices":[{"message":{"content":"a","annotations":[{"type":"url_citation"},{"type":"b"}],` +
				`"audio":{"id":"x","data":"AAAABBBB","expires_at":5}},"finish_reason":"stop"}]}`,
			pieces: []string{delta(`{"content":"a","annotations":[{"type":"url_citation"}],"audio":{"id":"x","data":"AAAA"}}`),
				lastDelta(`{"annotations":[{"type":"b"}],"audio":{"id":"x","data":"BBBB","expires_at":5}}`, "stop")},
			want: engine.Answer{Text: "a", FinishReason: "stop", Rest: engine.Rest{Message: []byte(
				`{"annotations":[{"type":"url_citation"},{"type":"b"}],"audio":{"data":"AAAABBBB","expires_at":5,"id":"x"}}`)}},
		},
		{
			name: "function_call",
			whole: `{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}},` +
				`"finish_reason":"function_call"}]}`,
			pieces: []string{delta(`{"function_call":{"name":"f","arguments":""}}`),
				delta(`{"function_call":{"arguments":"{\"a\":"}}`),
				lastDelta(`{"function_call":{"arguments":"1}"}}`, "function_call")},
			want: engine.Answer{FinishReason: "function_call",
				Rest: engine.Rest{Message: []byte(`{"function_call":{"arguments":"{\"a\":1}","name":"f"}}`)}},
		},
		{
			name: "token ids, stop reason, prompt log probabilities, usage details; nothing that differs each time",
			whole: `{"id":"x","created":5,"object":"chat.completion","system_fingerprint":"fp","service_tier":"batch",` +
				`"timings":{"ms":1},"prompt_logprobs":[null,{"1":{"logprob":-1.50}}],"kv":null,"list":[],"choices":[{"message":` +
				`{"content":"ab"},"finish_reason":"stop","stop_reason":"###","token_ids":[1,2,3]}],"usage":{"prompt_tokens":9,` +
				`"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":6},` +
				`"completion_tokens_details":{"reasoning_tokens":2},"queue_time":0.5}}`,
			pieces: []string{
				`{"id":"x","created":5,"service_tier":"batch","prompt_logprobs":[null,{"1":{"logprob":-1.50}}],` +
					`"choices":[{"delta":{"content":"a"},"token_ids":[1]}]}`,
				`{"id":"y","created":6,"service_tier":"batch","choices":[{"delta":{"content":"b"},"token_ids":[2]}]}`,
				`{"id":"y","created":6,"service_tier":"batch","obfuscation":"xx","choices":[{"delta":{},"token_ids":[3],` +
					`"finish_reason":"stop","stop_reason":"###"}]}`,
				`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,` +
					`"prompt_tokens_details":{"cached_tokens":6},"completion_tokens_details":{"reasoning_tokens":2}}}`},
			want: engine.Answer{Text: "ab", FinishReason: "stop",
				Usage: engine.Usage{PromptTokens: 9, CompletionTokens: 3, CachedTokens: 6, ReasoningTokens: 2},
				Rest: engine.Rest{Choice: []byte(`{"stop_reason":"###","token_ids":[1,2,3]}`),
					Usage: []byte(`{"completion_tokens_details":{"reasoning_tokens":2},"prompt_tokens_details":{"cached_tokens":6}}`),
					Body:  []byte(`{"prompt_logprobs":[null,{"1":{"logprob":-1.50}}],"service_tier":"batch"}`)}},
		},
		{
			name: "more cached and reasoning tokens than there are tokens: all of them, and the usage as it is",
			whole: `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,` +
				`"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64},` +
				`"completion_tokens_details":{"reasoning_tokens":4}}}`,
			pieces: []string{lastDelta(`{"content":"a"}`, "stop"),
				`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,` +
					`"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":4}}}`},
			want: engine.Answer{Text: "a", FinishReason: "stop",
				Usage: engine.Usage{PromptTokens: 9, CompletionTokens: 3, CachedTokens: 9, ReasoningTokens: 3},
				Rest: engine.Rest{Usage: []byte(`{"completion_tokens_details":{"reasoning_tokens":4},` +
					`"prompt_tokens_details":{"cached_tokens":64}}`)}},
		},
		{
			name: "reasoning details, joined by index",
			whole: `{"choices":[{"message":{"content":"a","reasoning":"hmm","reasoning_details":[{"type":"text","text":"hmm",` +
				`"index":0},{"type":"sum","summary":"s","index":1}]},"finish_reason":"stop"}]}`,
			pieces: []string{delta(`{"reasoning":"h","reasoning_details":[{"type":"text","text":"h","index":0}]}`),
				`{"choices":[{"delta":{"reasoning":"mm","reasoning_details":[{"type":"text","text":"mm","index":0},` +
					`{"type":"sum","summary":"s","index":1}]}}]}`, lastDelta(`{"content":"a"}`, "stop")},
			want: engine.Answer{Text: "a", Reasoning: "hmm", FinishReason: "stop", Rest: engine.Rest{SaysReasoning: true,
				Message: []byte(`{"reasoning_details":[{"index":0,"text":"hmm","type":"text"},` +
					`{"index":1,"summary":"s","type":"sum"}]}`)}},
		},
		{
			name: "content as parts",
			whole: `{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},` +
				`{"type":"text","text":"fo"},"ur",{"type":"image","url":"u"}]},"finish_reason":"stop"}]}`,
			pieces: []string{delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}`),
				delta(`{"content":[{"type":"thinking","thinking":"m"}]}`),
				delta(`{"content":[{"type":"text","text":"fo"}]}`), delta(`{"content":"ur"}`),
				lastDelta(`{"content":[{"type":"image","url":"u"}]}`, "stop")},
			want: engine.Answer{Text: "four", Reasoning: "hm", FinishReason: "stop",
				Rest: engine.Rest{Message: []byte(`{"content_parts":[{"type":"image","url":"u"}]}`)}},
		},
		{
			name: "tool calls with further members",
			whole: `{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"arguments":{"x":1},"name":"f"},` +
				`"id":"a","type":"function","extra":{"signature":"s"}},` +
				`{"id":"b","type":"custom","custom":{"name":"g","input":"hi"}}]},"finish_reason":"tool_calls"}]}`,
			pieces: []string{
				delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"},"extra":{"signature":"s"}}]}`),
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}},` +
					`{"index":1,"id":"b","type":"custom","custom":{"name":"g","input":"h"}}]}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},` +
					`{"index":1,"custom":{"input":"i"}}]},"finish_reason":"tool_calls"}]}`},
			want: engine.Answer{FinishReason: "tool_calls", ToolCalls: []byte(
				`[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"},"extra":{"signature":"s"}},` +
					`{"id":"b","type":"custom","custom":{"input":"hi","name":"g"}}]`)},
		},
		{
			name:  "pieces beside the whole so far",
			whole: `{"citations":["u"],"choices":[{"message":{"content":"one two"},"finish_reason":"stop"}]}`,
			pieces: []string{
				beside(`{"content":"one "}`, `{"content":"one "}`),
				beside(`{"content":"two"}`, `{"content":"one two"}`),
				`{"citations":["u"],"choices":[{"delta":{},"message":{"content":"one two"},"finish_reason":"stop"}]}`},
			want: engine.Answer{Text: "one two", FinishReason: "stop", Rest: engine.Rest{Body: []byte(`{"citations":["u"]}`)}},
		},
		{
			name:  "only the whole beside empty pieces",
			whole: `{"choices":[{"message":{"content":"one two"},"finish_reason":"stop"}]}`,
			pieces: []string{beside(`{"content":""}`, `{"content":"one "}`),
				lastDelta(`{},"message":{"content":"one two"}`, "stop")},
			want: engine.Answer{Text: "one two", FinishReason: "stop"},
		},
		{
			name: "choices with other numbers",
			whole: `{"choices":[{"index":1,"message":{"content":"b"},"finish_reason":"stop"},` +
				`{"index":"0","message":{"content":"a"},"finish_reason":"stop"}]}`,
			pieces: []string{`{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
				`{"choices":[{"index":1,"delta":{"content":"b"}}]}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`},
			want: engine.Answer{Text: "a", FinishReason: "stop"},
		},
		{
			name:  "the only choice has number 1",
			whole: `{"choices":[{"index":1,"message":{"content":"ab"},"finish_reason":"stop"}]}`,
			pieces: []string{`{"choices":[{"index":1,"delta":{"content":"a"}}]}`,
				`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`},
			want: engine.Answer{Text: "ab", FinishReason: "stop"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for name, h := range map[string]string{"whole": c.whole, "streamed": events(c.pieces...)} {
				got, err := ask(t, serve(t, streams(h)), hello)
				if c.want.Usage == (engine.Usage{}) {
					got.Usage = engine.Usage{}
				}
				if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
					t.Errorf("%s: %v\n%s", name, err, diff)
				}
			}
		})
	}
}

func TestParallelToolCallsAreToldApart(t *testing.T) {
	t.Parallel()
	call := func(members, name, arguments string) string {
		return `{` + members + `"type":"function","function":{"name":"` + name + `","arguments":"` + arguments + `"}}`
	}
	piece := func(calls ...string) string {
		s := ""
		for i, c := range calls {
			if i > 0 {
				s += ","
			}
			s += c
		}
		return delta(`{"tool_calls":[` + s + `]}`)
	}
	const args = `{\"x\":1}`
	two := `[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},` +
		`{"id":"b","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]`
	noIDs := `[{"type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},` +
		`{"type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]`
	one := `[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]`
	for _, c := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"without numbers, in two pieces", []string{piece(call(`"id":"a",`, "f", args)), piece(call(`"id":"b",`, "g",
			args))}, two},
		{"without numbers, in one piece", []string{piece(call(`"id":"a",`, "f", args), call(`"id":"b",`, "g", args))}, two},
		{"number 0 for all", []string{piece(call(`"index":0,"id":"a",`, "f", args)), piece(call(`"index":0,"id":"b",`,
			"g", args))}, two},
		{"numbers in text", []string{piece(call(`"index":"1","id":"b",`, "g", args)), piece(call(`"index":"0","id":"a",`,
			"f", args))}, two},
		{"numbers from 1", []string{piece(call(`"index":1,"id":"a",`, "f", args)), piece(call(`"index":2,"id":"b",`, "g",
			args))}, two},
		{"without numbers, arguments in pieces", []string{piece(call(`"id":"a",`, "f", "")),
			piece(`{"function":{"arguments":"{\"x\":"}}`), piece(`{"function":{"arguments":"1}"}}`),
			piece(call(`"id":"b",`, "g", `{\"x\":`)), piece(`{"id":"b","function":{"arguments":"1}"}}`)}, two},
		{"one function twice, without ids or numbers", []string{piece(call("", "f", args)), piece(call("", "f", args))},
			noIDs},
		{"one function twice, with number 0", []string{piece(call(`"index":0,`, "f", args)), piece(call(`"index":0,`, "f",
			args))}, noIDs},
		{"one function twice in one piece, empty ids", []string{piece(call(`"id":"",`, "f", args), call(`"id":null,`, "f",
			args))}, noIDs},
		{"name and id repeated in every piece", []string{piece(call(`"index":0,"id":"a",`, "f", `{\"x\"`)),
			piece(call(`"index":0,"id":"a",`, "f", `:1}`))}, one},
		{"name repeated without an id", []string{piece(call(`"index":0,"id":"a",`, "f", `{\"x\"`)),
			piece(call(`"index":0,`, "f", `:1}`))}, one},
		{"a new id with every piece", []string{piece(call(`"index":0,"id":"a",`, "f", "")),
			piece(`{"index":0,"id":"z1","function":{"arguments":"{\"x\":"}}`),
			piece(`{"index":0,"id":"z2","function":{"arguments":"1}"}}`)}, one},
	} {
		got, err := ask(t, serve(t, streams(events(append(c.pieces, lastDelta(`{}`, "tool_calls"))...))), hello)
		if err != nil || string(got.ToolCalls) != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.name, err, got.ToolCalls, c.want)
		}
	}
}

func TestUsageThatIsMissingIsUnknown(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string]engine.Usage{
		`{"prompt_tokens":3,"completion_tokens":5}`:        {PromptTokens: 3, CompletionTokens: 5},
		`{"prompt_tokens":3.0,"completion_tokens":5.0}`:    {PromptTokens: 3, CompletionTokens: 5},
		`{"input_tokens":3,"output_tokens":5}`:             {PromptTokens: 3, CompletionTokens: 5},
		`{"prompt_tokens":0,"completion_tokens":0}`:        {},
		`{"prompt_tokens":null,"completion_tokens":5}`:     {CompletionTokens: 5, Unknown: true},
		`{"prompt_tokens":3}`:                              {PromptTokens: 3, CompletionTokens: 1, Unknown: true},
		`{"prompt_tokens":-1,"completion_tokens":"many"}`:  {CompletionTokens: 1, Unknown: true},
		`{"prompt_tokens":1e300,"completion_tokens":1e18}`: {CompletionTokens: 1, Unknown: true},

		// No request takes so many tokens.
		`{"prompt_tokens":9007199254740991,"completion_tokens":2147483648}`: {CompletionTokens: 1, Unknown: true},
		`{"prompt_tokens":2147483647,"completion_tokens":5}`:                {PromptTokens: 1<<31 - 1, CompletionTokens: 5},
		`null`: {CompletionTokens: 1, Unknown: true},
		`"no"`: {CompletionTokens: 1, Unknown: true},
	} {
		h := whole(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":` + usage + `}`)
		a, err := ask(t, serve(t, h), hello)
		if err != nil || a.Usage != want {
			t.Errorf("%s: %+v, %v; want %+v", usage, a.Usage, err, want)
		}
	}
}

func TestTokensThatServerDoesNotReportAreCountedForBudgets(t *testing.T) {
	t.Parallel()
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			b, _ := io.ReadAll(r.Body)
			asked = append(asked, string(b))
			whole(fmt.Sprintf(`{"count":%d}`, 40+2*len(asked)))(w, r)
			return
		}
		whole(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`)(w, r)
	})
	r := hello
	r.CountTokens = true
	a, err := ask(t, c, r)
	if want := (engine.Usage{PromptTokens: 42, CompletionTokens: 44, Unknown: true}); err != nil || a.Usage != want {
		t.Errorf("%+v, %v", a.Usage, err)
	}
	want := []string{string(hello.Body), `{"model":"m","add_special_tokens":false,"prompt":"hi"}`}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the tokenizer was asked for something else:\n%s", diff)
	}
	if _, err := ask(t, c, hello); err != nil || len(asked) != 2 {
		t.Errorf("a run without a budget asks the tokenizer: %d questions, %v", len(asked), err)
	}
	c = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			sends(404, "text/plain", "no")(w, r)
			return
		}
		whole(`{"choices":[{"message":{"content":"`+strings.Repeat("ab ", 30)+`"},"finish_reason":"stop"}]}`)(w, r)
	})
	a, err = ask(t, c, r)
	if err != nil || !a.Usage.Unknown || a.Usage.CompletionTokens != 30 || a.Usage.PromptTokens < 10 {
		t.Errorf("without a tokenizer: %+v, %v", a.Usage, err)
	}
}
