package identity

import (
	"bytes"
	"math/rand/v2"
	"rollout/shared/blake3pair"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"
)

// pattern returns n bytes of which no two chunks are alike.
func pattern(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestSumIsBlake3OfEveryLength(t *testing.T) {
	t.Parallel()
	const group = groupSize
	b := pattern(9*group + 7)
	h := NewHasher()
	for _, n := range []int{
		0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 3 << 10, 8 << 10, 8<<10 + 1,
		group - 1, group, group + 1, 2*group - 1, 2 * group, 2*group + 1, 3 * group, 3*group + 1025,
		4 * group, 5*group + 1, 7 * group, 8 * group, 8*group + 1, len(b),
	} {
		if got, want := h.Content(b[:n]), blake3.Sum256(b[:n]); got != want {
			t.Errorf("%d bytes: %s, want %x", n, got, want)
		}
	}
}

// TestShortValuesHaveTheIDsOfBlake3 checks both implementations for short values,
// as far as this processor has them.
func TestShortValuesHaveTheIDsOfBlake3(t *testing.T) {
	t.Parallel()
	b := pattern(blake3pair.MaxLen + 1)
	ways := map[string]func(*Hasher) ContentID{"groups": (*Hasher).sumGroups}
	if blake3pair.Available() {
		ways["pairs"] = (*Hasher).sumShort
	}
	for name, sum := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := NewHasher()
			for n := range blake3pair.MaxLen + 1 {
				h.Reset()
				h.Write(b) // leaves bytes behind the value's
				h.Reset()
				h.Write(b[len(b)-n:])
				got, again, want := sum(h), sum(h), ContentID(blake3.Sum256(b[len(b)-n:]))
				if got != want || again != want {
					t.Fatalf("%d bytes: %s, asked again %s, want %s", n, got, again, want)
				}
			}
		})
	}
}

func TestSumDoesNotDependOnTheWrites(t *testing.T) {
	t.Parallel()
	b := pattern(5 * groupSize)
	rapid.Check(t, func(t *rapid.T) {
		b := b[:rapid.IntRange(0, len(b)).Draw(t, "bytes")]
		want := blake3.Sum256(b)
		h := NewHasher()
		h.Write([]byte("of an earlier value"))
		h.Reset()
		for rest := b; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if rapid.Bool().Draw(t, "as text") {
				h.WriteString(string(rest[:n]))
			} else {
				h.Write(rest[:n])
			}
			rest = rest[n:]
		}
		if got := h.Sum(); !bytes.Equal(got[:], want[:]) {
			t.Fatalf("%s, want %x", got, want)
		}
	})
}
