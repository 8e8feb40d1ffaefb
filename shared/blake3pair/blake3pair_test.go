package blake3pair_test

import (
	"math/rand/v2"
	"testing"

	"lukechampine.com/blake3"

	"rollout/shared/blake3pair"
)

func requireAvailable(t *testing.T) {
	t.Helper()
	if !blake3pair.Available() {
		t.Skip("this processor has no AVX2")
	}
}

// randomBuffer returns bytes of which no two chunks are alike.
func randomBuffer() *[blake3pair.MaxLen]byte {
	var b [blake3pair.MaxLen]byte
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return &b
}

func TestSumIsBlake3OfEveryLength(t *testing.T) {
	t.Parallel()
	requireAvailable(t)
	want := randomBuffer()
	var h blake3pair.Hasher
	for n := range blake3pair.MaxLen + 1 {
		buf := *want
		for range 2 { // the second sum finds what the first left behind
			if got := h.Sum(&buf, n); got != blake3.Sum256(want[:n]) {
				t.Fatalf("%d bytes: %x, want %x", n, got, blake3.Sum256(want[:n]))
			}
		}
	}
}

func TestSumOverwritesOnlyTheRestOfTheLastBlock(t *testing.T) {
	t.Parallel()
	requireAvailable(t)
	before := randomBuffer()
	var h blake3pair.Hasher
	for _, n := range []int{0, 1, 63, 64, 65, 1023, 1024, 1025, blake3pair.MaxLen} {
		buf := *before
		h.Sum(&buf, n)
		end := max(1, (n+63)/64) * 64
		for i := range buf {
			if inRest := i >= n && i < end; !inRest && buf[i] != before[i] || inRest && buf[i] != 0 {
				t.Errorf("%d bytes: byte %d is %#x, was %#x", n, i, buf[i], before[i])
				break
			}
		}
	}
}

func TestSumDoesNotAllocate(t *testing.T) {
	requireAvailable(t)
	buf := randomBuffer()
	var h blake3pair.Hasher
	for _, n := range []int{100, 1500, blake3pair.MaxLen} {
		if allocations := testing.AllocsPerRun(100, func() { h.Sum(buf, n) }); allocations > 0 {
			t.Errorf("%d bytes: %v allocations", n, allocations)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	if !blake3pair.Available() {
		b.Skip("this processor has no AVX2")
	}
	buf := randomBuffer()
	var h blake3pair.Hasher
	b.SetBytes(1180)
	for b.Loop() {
		h.Sum(buf, 1180)
	}
}
