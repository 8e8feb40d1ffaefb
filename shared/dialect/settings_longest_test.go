package dialect_test

import (
	"testing"

	"rollout/shared/config"
	"rollout/shared/dialect"
)

func TestSettingsKnowTheLongestAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  config.Request
		item int64
		want int64
	}{
		"of the item":              {config.Request{Omit: []string{"seed"}}, 9, 9},
		"none":                     {config.Request{Omit: []string{"seed"}}, 0, 0},
		"added":                    {config.Request{Extra: map[string]any{"max_completion_tokens": int64(7)}}, 0, 7},
		"added, but not sent":      {config.Request{Extra: map[string]any{"max_tokens": int64(7)}}, 9, 9},
		"no number":                {config.Request{Extra: map[string]any{"max_tokens": "many"}}, 0, 0},
		"left out":                 {config.Request{Omit: []string{"max_tokens"}}, 9, 0},
		"left out by another name": {config.Request{Omit: []string{"n_predict"}, MaxTokensField: "n_predict"}, 9, 0},
	} {
		if got := dialect.NewSettings(&c.run, config.Request{}).MaxTokens(c.item); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := dialect.NewSettings(nil, config.Request{}).MaxTokens(5); got != 5 {
		t.Errorf("without settings: %d, want 5", got)
	}
}
