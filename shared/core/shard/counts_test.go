package shard_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/core/shard"
)

// The counts of a run are the sum of its shards' counts, in any order and grouping.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reasons := rapid.SampledFrom([]string{"stop", "length", "", "tool_calls", "Ünï", "content filter"})
		var whole shard.Counts
		parts := make([]shard.Counts, rapid.IntRange(1, 4).Draw(t, "shards"))
		want := map[string]int{}
		for range rapid.IntRange(0, 40).Draw(t, "items") {
			k := rapid.IntRange(0, len(parts)-1).Draw(t, "shard")
			reason := reasons.Draw(t, "reason")
			for _, c := range []*shard.Counts{&whole, &parts[k]} {
				c.OK++
				c.PromptTokens += 3
				c.AddFinish(reason)
				if reason == "" {
					c.UsageUnknown++
				}
			}
			want[map[string]string{"": "none", "Ünï": "__n__", "content filter": "content_filter"}[reason]]++
			if reason == "stop" || reason == "length" || reason == "tool_calls" {
				want[""]--
				want[reason]++
			}
		}
		var sum shard.Counts
		for _, p := range parts {
			sum.Add(p)
		}
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
		if diff := cmp.Diff(whole, sum); diff != "" {
			t.Fatalf("the sum differs:\n%s", diff)
		}
		if len(want) == 0 {
			want = nil
		}
		if diff := cmp.Diff(want, sum.FinishReasons(0)); diff != "" {
			t.Fatalf("the reasons differ:\n%s", diff)
		}
	})
}

func TestMoneyOfManyShardsStaysInItsRange(t *testing.T) {
	t.Parallel()
	var sum shard.Counts
	for range 3 {
		sum.Add(shard.Counts{TokenNanoUSD: math.MaxInt64 / 2})
	}
	if sum.TokenNanoUSD != math.MaxInt64 || sum.Spend().MicroUSD != math.MaxInt64/1000+1 {
		t.Errorf("the sum is %d, and %+v are spent", sum.TokenNanoUSD, sum.Spend())
	}
}

func TestFinishReasonsAreBounded(t *testing.T) {
	t.Parallel()
	var c shard.Counts
	for k := range 1000 {
		c.OK++
		c.AddFinish(fmt.Sprintf("%d%s", k, strings.Repeat("x", 100)))
	}
	total := 0
	for k, n := range c.Finish {
		total += n
		if len(k) > 32 {
			t.Errorf("a reason of %d bytes", len(k))
		}
	}
	if len(c.Finish) > 17 || total != 1000 {
		t.Errorf("%d reasons of %d answers", len(c.Finish), total)
	}
}

func TestPlainCountsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	var c shard.Counts
	c.OK = 2
	c.AddFinish("stop")
	if c.Finish != nil {
		t.Errorf("%v", c.Finish)
	}
	if diff := cmp.Diff(map[string]int{"stop": 1}, c.FinishReasons(1)); diff != "" {
		t.Error(diff)
	}
}
