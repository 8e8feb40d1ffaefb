package run

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

// Shards that arrive in any order, some of them twice, are committed as 0, 1,
// 2, …: each exactly once, and only after all earlier ones.
func TestCommitLogCommitsInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		known := rapid.IntRange(1, 40).Draw(t, "known")
		var all []int
		for n := range known {
			for range rapid.IntRange(1, 3).Draw(t, "copies") {
				all = append(all, n)
			}
		}
		var l CommitLog
		twin := map[int]bool{}
		committed := 0
		for _, n := range rapid.Permutation(all).Draw(t, "order") {
			fresh, now, err := l.Add(n, known)
			if err != nil || fresh == twin[n] {
				t.Fatalf("Add(%d): fresh %v, twin has it %v, %v", n, fresh, twin[n], err)
			}
			twin[n] = true
			if now.Lo != committed {
				t.Fatalf("commits %v after %d", now, committed)
			}
			for ; twin[committed]; committed++ {
			}
			if now.Hi != committed || l.Frontier() != committed || l.Buffered() != len(twin)-committed {
				t.Fatalf("commits %v, frontier %d, buffered %d; twin: frontier %d of %d",
					now, l.Frontier(), l.Buffered(), committed, len(twin))
			}
			b, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			l = CommitLog{}
			if err := json.Unmarshal(b, &l); err != nil {
				t.Fatal(err)
			}
		}
		if committed != known {
			t.Fatalf("%d of %d committed", committed, known)
		}
	})
}

func TestCommitLogRejectsUnknownShards(t *testing.T) {
	t.Parallel()
	var l CommitLog
	for _, n := range []int{-1, 3, 1 << 40} {
		fresh, now, err := l.Add(n, 3)
		if !fault.Is(err, fault.Invalid) || fresh || now != (interval.Range{}) {
			t.Errorf("Add(%d, 3) = %v, %v, %v", n, fresh, now, err)
		}
	}
	if l.Frontier() != 0 || l.Buffered() != 0 {
		t.Errorf("a rejected shard is in: %v", l.Set.Ranges())
	}
}
