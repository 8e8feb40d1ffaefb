package result_test

import (
	"testing"

	"rollout/shared/core/shard"
	"rollout/shared/result"
)

func TestLargeResultsAreReadFewAtOnce(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		mib  []int64 // of the result of each shard; 0 for none
		want int
	}{
		"none":          {nil, 0},
		"small":         {[]int64{1, 0, 2, 3, 4, 5, 6, 7}, 8},
		"one too large": {[]int64{900, 1}, 1},
		"as much":       {[]int64{32, 32, 0}, 3},
		"too much":      {[]int64{32, 32, 1}, 2},
	} {
		for checkpoints := range 2 {
			var docs []shard.Doc
			for _, n := range c.mib {
				var d shard.Doc
				switch ref := (&shard.Ref{Length: n * mib}); {
				case n == 0:
				case checkpoints == 1:
					d.Checkpoint = ref
				default:
					d.Result = ref
				}
				docs = append(docs, d)
			}
			if got := result.Together(docs); got != c.want {
				t.Errorf("%s: %d, want %d", name, got, c.want)
			}
		}
	}
}
