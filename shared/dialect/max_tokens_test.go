package dialect_test

import (
	"testing"

	"rollout/shared/config"
	"rollout/shared/dialect"
)

func TestMaxTokensIsThatOfTheLineOrElseOfTheRun(t *testing.T) {
	t.Parallel()
	run := 64
	request := func(member string) string {
		return `{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{` + member +
			`"messages":[{"role":"user","content":"a"}]}}`
	}
	for line, want := range map[string]struct{ alone, with int64 }{
		`{"prompt":"a"}`:                      {0, 64},
		request(``):                           {0, 64},
		request(`"max_tokens":7,`):            {7, 7},
		request(`"max_completion_tokens":7,`): {7, 7},
		request(`"max_tokens":-7,`):           {0, 0},
	} {
		name := dialect.Plain
		if line[2] == 'c' {
			name = dialect.OpenAI
		}
		it, err := dialect.Parse(name, []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if n := it.MaxTokens(config.Sampling{}); n != want.alone {
			t.Errorf("%s: %d tokens, want %d", line, n, want.alone)
		}
		if n := it.MaxTokens(config.Sampling{MaxTokens: &run}); n != want.with {
			t.Errorf("%s: %d tokens with the run's bound, want %d", line, n, want.with)
		}
	}
}
