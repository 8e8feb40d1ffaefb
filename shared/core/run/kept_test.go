package run

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

// TestChildSendsItsTouchedShardsAlone draws which of a child's shards are kept, its constraints,
// and the order in which the others are done. Every shard is done once, only touched ones are
// sent, as the constraints admit, and the document stays small.
func TestChildSendsItsTouchedShardsAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 3000).Draw(t, "shards")
		every := rapid.SampledFrom([]int{1, 2, 3, 50, 4000}).Draw(t, "touched")
		touched := func(n int) bool { return n%every == 0 }
		look := rapid.IntRange(1, 700).Draw(t, "look")
		rules, of := Rules{Constraints: drawConstraints(t)}, drawAttributes(t)
		attributes := func(n int) schedule.Attributes {
			a := of(n)
			a.Kept = !touched(n)
			return a
		}
		checks := &twin{t: t, rules: rules, attributes: attributes}
		s, sent := New(testRun), map[int]bool{}
		var open []int
		for steps := 0; s.Phase != Finalizing; steps++ {
			if steps > 20*shards+100 {
				t.Fatalf("it is not done after %d steps: next %d of %d, %d open", steps, s.NextShard, shards, len(open))
			}
			w := Observed{Shards: shards, Items: uint64(shards), Complete: true, Pool: 4,
				KeptCounts: shard.Counts{OK: 7, Kept: 7}}
			if !rules.Constraints.NeedAttributes() {
				w.KeptUntil = min(shards, s.NextShard+look)
			}
			for n := s.NextShard; n < w.KeptUntil; n++ {
				if !touched(n) {
					w.Kept = append(w.Kept, interval.Range{Lo: n, Hi: n + 1})
				}
			}
			var evs []Event
			for range min(len(open), rapid.IntRange(0, 300).Draw(t, "done")) {
				k := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				evs = append(evs, Event{Kind: ShardDone, Shard: open[k], Counts: shard.Counts{OK: 1}})
				open = append(open[:k], open[k+1:]...)
			}
			w = withRows(s, w, rules, evs, attributes, 3)
			was, rejected := s, []Event(nil)
			if s, rejected = Step(was, w, rules, evs, epoch); len(rejected) > 0 {
				t.Fatalf("rejected %v", rejected)
			}
			checks.checkConstraints(was, s)
			for _, e := range s.Effects {
				if e.Kind != Send {
					continue
				}
				for n := e.Range.Lo; n < e.Range.Hi; n++ {
					if sent[n] || !touched(n) {
						t.Fatalf("shard %d is sent, touched %v, sent before %v", n, touched(n), sent[n])
					}
					sent[n] = true
					open = append(open, n)
				}
			}
			if b, _ := json.Marshal(s); len(b) > 16<<10 {
				t.Fatalf("the document has %d bytes", len(b))
			}
		}
		if want := (shards + every - 1) / every; len(sent) != want || s.Counts.OK != want+7 || s.Counts.Kept != 7 ||
			s.KeptShards != shards-want {
			t.Fatalf("%d are sent, want %d; %d kept; counts %+v", len(sent), want, s.KeptShards, s.Counts)
		}
	})
}

// Rows that a child keeps from its parent are no news: they neither end a run that
// fails fast, nor interrupt a streak of failed shards.
func TestKeptRowsAreNoOutcomeOfTheChild(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		counts shard.Counts
		reason Reason
		streak int
	}{
		{"a kept failure and a new answer", shard.Counts{OK: 1, Failed: 1, KeptFailed: 1}, "", 0},
		{"kept rows alone", shard.Counts{OK: 1, Kept: 1, Failed: 1, KeptFailed: 1}, "", 3},
		{"a kept answer and a new failure", shard.Counts{OK: 1, Kept: 1, Failed: 2, KeptFailed: 1}, ReasonFailFast, 4},
	} {
		s := New(testRun)
		s.Phase, s.Shards, s.Items, s.NextShard, s.FailedStreak, s.Complete = Running, 2, 4, 1, 3, true
		w := Observed{Shards: 2, Items: 4, Complete: true, KeptUntil: 1}
		s, _ = Step(s, w, Rules{FailFast: true}, []Event{{Kind: ShardDone, Counts: c.counts}}, epoch)
		if s.Reason != c.reason || s.FailedStreak != c.streak {
			t.Errorf("%s: it ends for %q with a streak of %d, want %q, %d", c.name, s.Reason, s.FailedStreak, c.reason, c.streak)
		}
	}
}
