package dialect_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/dialect"
	"rollout/shared/fault"
)

func TestReadAnswersReturnsTheTextsOfEveryDialect(t *testing.T) {
	t.Parallel()
	odd := "a\u2028\n\"b\" {answer}"
	for name, c := range map[string]struct {
		dialect dialect.Name
		line    string
	}{
		"plain": {dialect.Plain, `{"prompt":"x","completion":"mine","Completion":"mine","COMPLETIONS":["mine"]}`},
		"openai chat": {dialect.OpenAI, `{"custom_id":"a","method":"POST","url":"/v1/chat/completions",` +
			`"body":{"messages":[{"role":"user","content":"x"}]}}`},
		"openai completion": {dialect.OpenAI, `{"custom_id":"a","method":"POST","url":"/v1/completions",` +
			`"body":{"prompt":"x"}}`},
		"bedrock": {dialect.Bedrock, `{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"x"}]}}`},
		"vertex":  {dialect.Vertex, `{"key":"a","request":{"contents":[{"role":"user","parts":[{"text":"x"}]}]}}`},
	} {
		it, err := dialect.Parse(c.dialect, []byte(c.line))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range [][]string{{odd}, {"one", "", "three"}} {
			r := dialect.Result{ID: "a", GeneratedAt: time.Unix(0, 0)}
			for _, text := range want {
				r.Answers = append(r.Answers, dialect.Answer{Text: text, Reasoning: "not this"})
			}
			m, _ := run()
			row := dialect.AppendOutput(nil, it, m, r)
			got, err := dialect.ReadAnswers(c.dialect, row)
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%s: %v (-want +got)\n%s", name, err, d)
			}
		}
	}
}

func TestReadAnswersOfOtherEndpoints(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"output":[{"type":"reasoning","content":[]},{"type":"message","content":[{"type":"output_text","text":"fo"},` +
			`{"type":"output_text","text":"ur"}]}]}`: "four",
		`{"data":[{"embedding":[0.5]}]}`: "",
		`{"output":"four"}`:              "",
	} {
		got, err := dialect.ReadAnswers(dialect.OpenAI, []byte(`{"id":"b","response":{"body":`+body+`},"error":null}`))
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, %v, want %q", body, got, err, want)
		}
	}
}

func TestReadAnswersRefusesOtherRows(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Name{dialect.Plain, dialect.OpenAI, dialect.Bedrock, dialect.Vertex} {
		for _, row := range []string{``, `{}`, `[]`, `{"error":"x"}`} {
			if got, err := dialect.ReadAnswers(d, []byte(row)); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s: %s: %q, %v, want Corrupt", d, row, got, err)
			}
		}
	}
}

func TestReadCompletionsSaysHowEachAnswerEnded(t *testing.T) {
	t.Parallel()
	for row, want := range map[string][]dialect.Answer{
		`{"completion":"a","finish_reason":"length","Finish_Reason":"stop"}`: {{Text: "a", FinishReason: "length"}},
		`{"completion":"a","finish_reason":null}`:                            {{Text: "a"}},
		`{"completion":"a","completions":[{"completion":"a","finish_reason":"stop"},{"completion":"","finish_reason":` +
			`"max_tokens"}],"finish_reason":"stop"}`: {{Text: "a", FinishReason: "stop"}, {FinishReason: "max_tokens"}},
	} {
		got, err := dialect.ReadCompletions([]byte(row))
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", row, err, d)
		}
	}
	for _, row := range []string{`{"completion":"a","completions":[{}]}`, `{"completion":"a","finish_reason":1}`,
		`{"completion":"a"`} {
		if got, err := dialect.ReadCompletions([]byte(row)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, %v, want Corrupt", row, got, err)
		}
	}
}
