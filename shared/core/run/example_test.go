package run_test

import (
	"fmt"
	"time"

	"rollout/shared/core/run"
	"rollout/shared/core/shard"
)

// A run of two shards: a step sends them, another step takes their completions,
// and the last one takes the news that the output files are written.
func Example() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rules := run.Rules{Grace: 10 * time.Second}
	state := run.New("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	observed := run.Observed{Shards: 2, Items: 512, Complete: true, Pool: 8} // what plan and heartbeats say

	step := func(events ...run.Event) {
		state, _ = run.Step(state, observed, rules, events, now)
		// Here coordinate saves the state, and then performs its effects.
		fmt.Println(state.Phase)
		for _, e := range state.Effects {
			fmt.Println("  effect:", e.Kind)
		}
		now = now.Add(time.Second)
	}
	step(run.Event{Kind: run.Reevaluate})
	step(
		run.Event{Kind: run.ShardDone, Shard: 1, Counts: shard.Counts{OK: 256}}, // before shard 0: the order is free
		run.Event{Kind: run.ShardDone, Shard: 0, Counts: shard.Counts{OK: 256}},
		run.Event{Kind: run.ShardDone, Shard: 0, Counts: shard.Counts{OK: 256}}, // a repetition counts once
	)
	step(run.Event{Kind: run.Finalized, Counts: state.Counts})
	fmt.Println(state.Counts.OK, "answers")
	// Output:
	// running
	//   effect: send
	// finalizing
	//   effect: finalize
	// completed
	// 512 answers
}
