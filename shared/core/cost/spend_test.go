package cost_test

import (
	"math"
	"testing"

	"rollout/shared/core/cost"
)

// A server may count more tokens than there are. What they cost stays in its range.
func TestWrongTokenCountsCostABoundedAmount(t *testing.T) {
	t.Parallel()
	p := cost.TokenPrices{Prompt: 5, Completion: 1_000_000}
	if got := p.NanoUSD(2, 3); got != 3_000_010_000 {
		t.Errorf("2 and 3 tokens cost %d", got)
	}
	for _, n := range []int64{1<<31 - 1, 1<<53 - 1, math.MaxInt64} {
		if got := p.NanoUSD(n, n); got != 1e12 {
			t.Errorf("%d tokens cost %d, want 1e12", n, got)
		}
	}
	var sum int64
	for range 5 {
		sum = cost.Sum(sum, p.NanoUSD(1<<53-1, 1<<53-1))
	}
	if sum != 5e12 {
		t.Errorf("five of them cost %d", sum)
	}
}

func TestSumsOfMoneyEndAtTheLargest(t *testing.T) {
	t.Parallel()
	if got := cost.Sum(math.MaxInt64-1, 2); got != math.MaxInt64 {
		t.Errorf("the sum is %d", got)
	}
	if got := cost.Sum(cost.Sum(0, 3), 4); got != 7 {
		t.Errorf("the sum is %d", got)
	}
	u := cost.Use{NanoUSD: math.MaxInt64}
	if got := u.Plus(u).NanoUSD; got != math.MaxInt64 {
		t.Errorf("two uses cost %d", got)
	}
	for nano, want := range map[int64]int64{0: 0, 1: 1, 1000: 1, 1001: 2, math.MaxInt64: math.MaxInt64/1000 + 1} {
		if got := cost.Micros(nano); got != want {
			t.Errorf("%d billionths are %d millionths, want %d", nano, got, want)
		}
	}
}
