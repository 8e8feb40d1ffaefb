package dialect_test

import (
	"encoding/json"
	"testing"
	"time"

	"rollout/shared/dialect"
)

// TestScoresStandBesideTheMembersOfEveryDialect has a line with members of its own
// that are called like those with scores.
func TestScoresStandBesideTheMembersOfEveryDialect(t *testing.T) {
	t.Parallel()
	const own = `,"score":7,"scores":"mine","answer_scores":[]}`
	for d, line := range map[dialect.Name]string{
		dialect.Plain:   `{"id":"a","prompt":"x"` + own,
		dialect.OpenAI:  `{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}` + own,
		dialect.Bedrock: `{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"x"}]}` + own,
		dialect.Vertex:  `{"key":"a","request":{"contents":[{"role":"user","parts":[{"text":"x"}]}]}` + own,
	} {
		it, err := dialect.Parse(d, []byte(line))
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		m, _ := run()
		r := dialect.Result{ID: "a", Answers: answers(1), GeneratedAt: time.Unix(0, 0)}
		for scores, want := range map[string]string{
			"":                             `[7,"mine",[],null,null,null]`,
			`"score":0.5,"scores":{"a":1}`: `[0.5,{"a":1},null,7,"mine",[]]`,
		} {
			r.Scores = []byte(scores)
			row := dialect.AppendOutput(nil, it, m, r)
			var got map[string]json.RawMessage
			if err := json.Unmarshal(row, &got); err != nil {
				t.Fatalf("%s: %v in %s", d, err, row)
			}
			b, err := json.Marshal([]json.RawMessage{got["score"], got["scores"], got["answer_scores"],
				got["input_score"], got["input_scores"], got["input_answer_scores"]})
			if err != nil || string(b) != want {
				t.Errorf("%s: %s, %v, want %s", d, b, err, want)
			}
		}
	}
}
