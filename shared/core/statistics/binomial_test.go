package statistics

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"rollout/shared/core/identity"
)

// exactTail is UpperTail in rational numbers.
func exactTail(n, k int) float64 {
	sum := new(big.Int)
	for j := max(k, 0); j <= n; j++ {
		sum.Add(sum, new(big.Int).Binomial(int64(n), int64(j)))
	}
	p, _ := new(big.Rat).SetFrac(sum, new(big.Int).Lsh(big.NewInt(1), uint(n))).Float64()
	return p
}

func TestBinomialTailIsExact(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		for k := -1; k <= n; k++ {
			if got, want := UpperTail(n, k), exactTail(n, k); math.Abs(got-want) > 1e-14*want {
				t.Fatalf("P of %d heads or more in %d throws is %v, want %v", k, n, got, want)
			}
		}
	}
	for _, c := range []struct{ n, k int }{{1000, 550}, {900, 430}, {1500, 751}, {1500, 1499}, {1501, 760}} {
		if got, want := UpperTail(c.n, c.k), exactTail(c.n, c.k); math.Abs(got-want) > 1e-12*want {
			t.Errorf("P of %d heads or more in %d throws is %v, want %v", c.k, c.n, got, want)
		}
	}
}

// TestBinomialTailOfManyTickets compares with the normal distribution, with the correction
// for continuity.
func TestBinomialTailOfManyTickets(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	for _, k := range []int{499_000, 500_000, 500_500, 501_500} {
		z := (float64(k) - 0.5 - n/2) / math.Sqrt(n/4)
		want := math.Erfc(z/math.Sqrt2) / 2
		if got := UpperTail(n, k); math.Abs(got-want) > 1e-4*want {
			t.Errorf("P of %d heads or more in %d throws is %v, want about %v", k, n, got, want)
		}
	}
}

// TestTailsHaveTheGoldenDigest pins every P of McNemar's test with up to 200 changed
// tickets. A processor that fuses a product with a sum changes some of them.
func TestTailsHaveTheGoldenDigest(t *testing.T) {
	t.Parallel()
	var tails []byte
	for n := range 201 {
		for k := range n + 1 {
			tails = binary.LittleEndian.AppendUint64(tails, math.Float64bits(UpperTail(n, k)))
		}
	}
	const want = "2a6f0e8d417c04df3a9dc69443222bc077abb9f03935b41f9e128f46c7097bf8"
	if got := identity.Content(tails).String(); got != want {
		t.Errorf("the digest is %s, want %s", got, want)
	}
}
