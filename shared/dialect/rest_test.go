package dialect_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/dialect"
)

// rests are what servers send besides the known members of an answer.
var rests = []dialect.Rest{
	{},
	{Message: []byte(`{"annotations":[{"type":"url_citation"}],"refusal":"I can't."}`)},
	{Choice: []byte(`{"stop_reason":"###","token_ids":[1,2]}`), SaysReasoning: true},
	{Usage: []byte(`{"prompt_tokens_details":{"cached_tokens":64}}`)},
	{Body: []byte("{\"prompt_logprobs\":[null,{\"1\":\n{\"logprob\":-1.50}}],\"service_tier\":\"batch\"}")},
	{Message: []byte(`{"content":"twice","x":1}`), Choice: []byte(`{"index":5,"y":2}`),
		Usage: []byte(`{"total_tokens":1,"z":3}`),
		Body:  []byte(`{"id":"chatcmpl-1","created":1,"model":"other","v":4}`)}, // with members that rows write themselves
	{Message: []byte(`{broken`), Choice: []byte(`[]`), Usage: []byte("{\"\xff\":1}"), Body: []byte(`7`)},
}

func TestRowsKeepWhatTheServerSent(t *testing.T) {
	t.Parallel()
	answer := func(k int, text string) dialect.Answer {
		return dialect.Answer{Text: text, FinishReason: "stop", Reasoning: "hm", Rest: rests[k],
			Usage: dialect.Usage{PromptTokens: 3, CompletionTokens: 5}}
	}
	const chat = `{"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{}]}}`
	for _, c := range []struct {
		name, line string
		answers    []dialect.Answer
		want       []string // parts of the row
		not        []string
	}{
		{"a refusal has no content", chat, []dialect.Answer{answer(1, "")},
			[]string{`"message":{"role":"assistant","content":null,` +
				`"reasoning_content":"hm","annotations":[{"type":"url_citation"}],"refusal":"I can't."},"logprobs":null`}, nil},
		{"of the choice", chat, []dialect.Answer{answer(2, "t")}, []string{`"reasoning_content":"hm","reasoning":"hm"}`,
			`"finish_reason":"stop","stop_reason":"###","token_ids":[1,2]}]`}, nil},
		{"of the usage", chat, []dialect.Answer{answer(3, "t")},
			[]string{`"usage":{"prompt_tokens":3,"completion_tokens":5,` +
				`"total_tokens":8,"prompt_tokens_details":{"cached_tokens":64}}`}, nil},
		{"of the body", chat, []dialect.Answer{answer(4, "t")}, []string{`,"total_tokens":8},"prompt_logprobs":` +
			`[null,{"1":{"logprob":-1.50}}],"service_tier":"batch"}}`}, nil},
		{"no member twice", chat, []dialect.Answer{answer(5, "t")},
			[]string{`"content":"t"`, `"x":1`, `"index":0`, `"y":2`, `"z":3`, `"v":4`},
			[]string{"twice", `"index":5`, `"total_tokens":1,`, `"chatcmpl-1"`, `"other"`}},
		{"nothing that is not JSON", chat, []dialect.Answer{answer(6, "t")}, []string{`"content":"t"`}, []string{"broken"}},
		{"plain", `{"prompt":"p"}`, []dialect.Answer{answer(1, "")}, []string{`"response":{"choices":[{"message":` +
			`{"annotations":[{"type":"url_citation"}],"refusal":"I can't."}}]},"generated_at"`}, nil},
		{"plain, of everything", `{"prompt":"p"}`, []dialect.Answer{answer(5, "t")},
			[]string{`"response":{"choices":[{"message":{"x":1},"y":2}],"usage":{"z":3},"v":4}`}, nil},
		{"plain, several", `{"prompt":"p"}`, []dialect.Answer{answer(0, "t"), answer(3, "u")},
			[]string{`"response":{"usage":{"prompt_tokens_details":{"cached_tokens":64}}}}],"sampling_params"`}, nil},
		{"plain, a column response of the user", `{"prompt":"p","response":1}`, []dialect.Answer{answer(3, "t")},
			[]string{`"response":{"usage"`, `"input_response":1`}, nil},
		{"plain, only a column response of the user", `{"prompt":"p","response":1}`, []dialect.Answer{answer(0, "t")},
			[]string{`"response":1`}, []string{"input_response"}},
	} {
		d := dialect.Plain
		if strings.Contains(c.line, "custom_id") {
			d = dialect.OpenAI
		}
		it := parsed(t, d, c.line)
		row := dialect.AppendOutput(nil, it, dialect.Model{URI: "m"}, dialect.Result{ID: "a", Answers: c.answers})
		if !json.Valid(row) || bytes.Count(row, []byte("\n")) != 1 {
			t.Errorf("%s: not one line of JSON: %s", c.name, row)
		}
		for _, want := range c.want {
			if !strings.Contains(string(row), want) {
				t.Errorf("%s: %s lacks %s", c.name, row, want)
			}
		}
		for _, not := range c.not {
			if strings.Contains(string(row), not) {
				t.Errorf("%s: %s has %s", c.name, row, not)
			}
		}
	}
}

func TestUnknownUsageIsNull(t *testing.T) {
	t.Parallel()
	answers := []dialect.Answer{{Text: "t", Usage: dialect.Usage{CompletionTokens: 4, Unknown: true}}}
	for d, want := range map[dialect.Name]string{
		dialect.Plain:   `"usage":{"prompt_tokens":null,"completion_tokens":null}`,
		dialect.OpenAI:  `"usage":{"prompt_tokens":null,"completion_tokens":null,"total_tokens":null}`,
		dialect.Bedrock: `"usage":{"input_tokens":null,"output_tokens":null}`,
		dialect.Vertex:  `"usageMetadata":{"promptTokenCount":null,"candidatesTokenCount":null,"totalTokenCount":null}`,
	} {
		c := sameRequests[d]
		it := parsed(t, d, strings.NewReplacer("%s", "").Replace(strings.Replace(strings.Replace(
			strings.Replace(c.format, "%s", `"a"`, 1), "%s", "", 1), "%s", c.same[0], 1)))
		row := dialect.AppendOutput(nil, it, dialect.Model{URI: "m"},
			dialect.Result{ID: "a", Answers: answers, GeneratedAt: time.Unix(0, 0)})
		if diff := cmp.Diff(true, strings.Contains(string(row), want)); diff != "" {
			t.Errorf("%s: %s lacks %s", d, row, want)
		}
	}
}
