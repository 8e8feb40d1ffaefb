package gate

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"rollout/shared/core/identity"
)

// TestVerdictsHaveTheGoldenBits pins verdicts to the last bit. If they change, runs
// that are resumed with another version of rollout decide otherwise than they did.
func TestVerdictsHaveTheGoldenBits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		samples, scores int // the samples of a ticket; scores are multiples of 1 / scores
		want            string
	}{
		{1, 1, `{"accepted":true,"reason":"accepted","test":"mcnemar","tickets":60,"left_out":0,` +
			`"before":0.4666666666666667,"after":0.8166666666666667,"gain":0.35,` +
			`"interval":[0.2,0.48333333333333334],` +
			`"p":0.0002541302237659693,"alpha":0.05,"fixed":28,"broken":7,"flipped":null}`},
		{1, 7, `{"accepted":false,"reason":"not_significant","test":"bootstrap","tickets":60,"left_out":0,` +
			`"before":0.4523809523809523,"after":0.538095238095238,"gain":0.08571428571428572,` +
			`"interval":[-0.0166666666667273,0.18809523809519912],` +
			`"p":0.09381237524950099,"alpha":0.05,"fixed":20,"broken":12,"flipped":null}`},
		{3, 10, `{"accepted":false,"reason":"not_significant","test":"bootstrap","tickets":60,"left_out":0,` +
			`"before":0.5133333333333333,"after":0.5466666666666666,"gain":0.03333333333333335,` +
			`"interval":[-0.025555555555562628,0.09499999999999696],` +
			`"p":0.15768463073852296,"alpha":0.05,"fixed":10,"broken":12,"flipped":null}`},
	} {
		r := rand.New(rand.NewPCG(8, 8))
		pairs := tickets(0, 60, 0, 0)
		for i := range pairs {
			for range c.samples - 1 {
				pairs[i].Before, pairs[i].After = append(pairs[i].Before, 0), append(pairs[i].After, 0)
			}
			for k := range c.samples {
				before, after := r.Uint64()%uint64(c.scores+1), r.Uint64()%uint64(c.scores+2)
				pairs[i].Before[k] = float64(before) / float64(c.scores)
				pairs[i].After[k] = float64(min(int(after), c.scores)) / float64(c.scores)
			}
		}
		rule := usual()
		rule.Seed, rule.Resamples, rule.MaxBroken = 17, 500, 0.3
		v := Compare(pairs, rule)
		v.Flipped = nil
		if got, err := json.Marshal(v); err != nil || string(got) != c.want {
			t.Errorf("%d scores of %d: %v\n%s, want\n%s", c.samples, c.scores, err, got, c.want)
		}
	}
}

// TestDrawsFollowTheirFormula computes random numbers from blake3 directly.
func TestDrawsFollowTheirFormula(t *testing.T) {
	t.Parallel()
	d := newDraws("purpose", 0x0102030405060708)
	for block := range byte(3) {
		digest := identity.Content([]byte("purpose\x08\x07\x06\x05\x04\x03\x02\x01" +
			string(rune(block)) + "\x00\x00\x00\x00\x00\x00\x00"))
		for i := 0; i < len(digest); i += 4 {
			if got, want := d.bits32(), binary.LittleEndian.Uint32(digest[i:]); got != want {
				t.Fatalf("block %d has %d at %d, want %d", block, got, i, want)
			}
		}
	}
}

// TestIndexesCoverTheirRange checks the ends of the range, and that no index is drawn
// much more often than another.
func TestIndexesCoverTheirRange(t *testing.T) {
	t.Parallel()
	d := newDraws("purpose", 1)
	counts := make([]int, 7)
	for range 70_000 {
		counts[d.index(len(counts))]++
	}
	for i, n := range counts {
		if n < 9_600 || n > 10_400 {
			t.Errorf("index %d is drawn %d times of 70,000, want about 10,000", i, n)
		}
	}
}
