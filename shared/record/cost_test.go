package record_test

import (
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// A part of a run may be answered by workers that know no price yet.
func TestTokensCostWhatWasCountedAndAtLeastWhatTheAnswersCost(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Engine.PromptPrice, d.Engine.CompletionPrice = 1, 2
	for name, c := range map[string]struct {
		counts shard.Counts
		want   float64
	}{
		"nothing is counted":             {shard.Counts{PromptTokens: 1e6, CompletionTokens: 1e6}, 3},
		"a part of the run is counted":   {shard.Counts{PromptTokens: 1e6, CompletionTokens: 1e6, TokenNanoUSD: 1e9}, 3},
		"more is counted than led to it": {shard.Counts{PromptTokens: 1e6, CompletionTokens: 1e6, TokenNanoUSD: 4e9}, 4},
	} {
		if got := (record.Manifest{}).TokenDollars(d, c.counts, nil); got != c.want {
			t.Errorf("%s: $%g, want $%g", name, got, c.want)
		}
	}
}
