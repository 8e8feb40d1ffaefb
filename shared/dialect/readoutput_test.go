package dialect_test

import (
	"testing"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
)

func TestOutputRowsAreReadBack(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for d, line := range lineOf {
		for name, unknown := range map[string]bool{"counted": false, "estimated": true} {
			it := parsed(t, d, line)
			usage := dialect.Usage{PromptTokens: 7, CompletionTokens: 3, Unknown: unknown}
			row := dialect.AppendOutput(nil, it, dialect.NewModel("m", identity.Model("m", ""), config.Run{}),
				dialect.Result{ID: "a", GeneratedAt: at, Answers: []dialect.Answer{
					{Text: "one", FinishReason: "stop", Usage: usage}, {Text: "two", FinishReason: "length", Usage: usage}}})
			got, err := dialect.ReadOutput(d, row)
			if err != nil {
				t.Errorf("%s, %s: %v", d, name, err)
				continue
			}
			if got.ID != "a" || len(got.Texts) != 2 || got.Texts[1] != "two" || len(got.FinishReasons) != 2 ||
				got.FinishReasons[0] == got.FinishReasons[1] {
				t.Errorf("%s, %s: %+v", d, name, got)
			}
			if want := (dialect.Usage{PromptTokens: 7, CompletionTokens: 6}); unknown != got.Usage.Unknown ||
				!unknown && got.Usage != want {
				t.Errorf("%s, %s: the tokens are %+v", d, name, got.Usage)
			}
			if d != dialect.Bedrock && !got.GeneratedAt.Equal(at) {
				t.Errorf("%s, %s: it was generated at %s", d, name, got.GeneratedAt)
			}
		}
	}
	if _, err := dialect.ReadOutput(dialect.Plain, []byte(`{"id":"a"}`)); err == nil {
		t.Error("a row without an answer is an output row")
	}
}
