package clerk_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"lukechampine.com/blake3"

	"rollout/shared/core/guidance"
	"rollout/shared/rollout"
)

const nullConfig = `
schema_version = 1
kind = "rollout"
[rollout]
seed = %d
system = "{guidance}"
prompt = "{content}"
[[mission]]
name = "coin"
scaffold = "Say heads or tails."
entries = ["Trust yourself."]
[[decode]]
samples = 2
[answer]
verdicts = ["heads", "tails"]
[runner]
rollout_batch_size = 12
[reflection]
batch_size = 4
candidates = %d
[gate]
share = 0.6
holdout_share = 0
tickets = 10
min_tickets = 10
resamples = 99
max_broken = 1
`

// number draws an integer from 0 to n from a request.
func number(n uint64, of ...any) uint64 {
	sum := blake3.Sum256(fmt.Append(nil, of...))
	return binary.LittleEndian.Uint64(sum[:8]) % n
}

// guesser is a model to which guidance makes no difference but noise: each request draws
// an answer anew. It reflects with legal plans of random rules.
func guesser(id string, body []byte) reply {
	said := []string{"heads", "tails"}[number(2, string(body))]
	switch {
	case strings.Contains(id, ".summarise."):
		said = `{"summary":"It guessed.","lesson":"Think of a coin."}`
	case strings.Contains(id, ".critique."), strings.Contains(id, ".consolidate."):
		var ops []guidance.Operation
		for n := range 1 + number(3, string(body), "count") {
			ops = append(ops, guidance.Operation{Kind: guidance.Add, Reason: "It may help.", Evidence: evidence(body),
				Text: fmt.Sprintf("Coin rule %d: think of number %d.", n, number(1_000_000, string(body), n))})
		}
		b, err := json.Marshal(guidance.Plan{Operations: ops})
		if err != nil {
			panic(err) // a plan always encodes
		}
		said = string(b)
	}
	return reply{text: said}
}

// named matches the key of a ticket in a prompt of reflection.
var named = regexp.MustCompile(`\\"(t\d+)\\"`)

// evidence returns the first ticket that a prompt of reflection names.
func evidence(body []byte) []string {
	m := named.FindSubmatch(body)
	if m == nil {
		return nil
	}
	return []string{string(m[1])}
}

func coinLabel(n int) string { return []string{"heads", "tails"}[number(2, n)] }

// coins returns n tickets.
func coins(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"group_id":"c%d","content":"coin %d","label":"%s"}`+"\n", i, i, coinLabel(i))
	}
	return b.String()
}

// TestNullModelIsRarelyAccepted measures how often the gate accepts a candidate although
// guidance makes no difference, in runs with 200 seeds. In the first reflection of each run, which are
// independent of each other, at most alpha of the best candidates should pass the gate,
// whether there is one candidate or there are four, and with a front of guidances that won
// by chance on some tickets; and at most alpha² the confirmation too. The bounds are three standard
// deviations above that.
func TestNullModelIsRarelyAccepted(t *testing.T) {
	t.Parallel()
	const seeds, alpha = 200, 0.05
	above := func(n, p float64) int { return int(n*p + 3*math.Sqrt(n*p*(1-p))) }
	for _, of := range []struct{ candidates, pareto int }{{1, 0}, {4, 0}, {1, 6}} {
		t.Run(fmt.Sprintf("candidates=%d,pareto=%d", of.candidates, of.pareto), func(t *testing.T) {
			t.Parallel()
			won, accepted, reflections, compared, others := 0, 0, 0, 0, 0
			for seed := range seeds {
				c := runConfig(t, fmt.Sprintf(nullConfig, seed, of.candidates))
				c.Reflection.Pareto = of.pareto
				b := newBench(t, c, coins(34), guesser)
				sum := b.run()
				reflections, accepted = reflections+sum.Reflections, accepted+sum.Accepted
				for _, r := range b.reflections() {
					if r.Parent != "" {
						others++
					}
					if !r.Gated || len(r.Candidates) != of.candidates && (r.Parent == "" || len(r.Candidates) > 0) {
						t.Fatalf("seed %d: %+v", seed, r)
					}
					for _, c := range r.Candidates {
						if c.Gate == nil {
							t.Fatalf("seed %d: a candidate of reflection %d is not compared: %+v", seed, r.Number, c)
						}
						compared++
					}
					if r.Number == 0 && r.Candidates[r.Best].Gate.Accepted {
						won++
					}
				}
			}
			t.Logf("%d of %d first reflections pass the gate, bound %d; %d of %d are accepted, bound %d; "+
				"%d candidates compared, %d reflections begin with another guidance", won, seeds, above(seeds, alpha),
				accepted, reflections, above(float64(reflections), alpha*alpha), compared, others)
			if (others > 0) != (of.pareto > 0) {
				t.Errorf("%d reflections begin with another guidance than the present one", others)
			}
			if won > above(seeds, alpha) || accepted > above(float64(reflections), alpha*alpha) {
				t.Error("candidates that make no difference are accepted too often")
			}
		})
	}
}

// TestWithoutAGateNoiseIsAccepted shows that the null test can fail.
func TestWithoutAGateNoiseIsAccepted(t *testing.T) {
	t.Parallel()
	c := runConfig(t, fmt.Sprintf(nullConfig, 1, 1))
	c.Gate.Off = true
	b := newBench(t, c, coins(34), guesser)
	sum := b.run()
	if sum.Accepted != sum.Reflections || sum.Accepted == 0 {
		t.Errorf("%d of %d reflections are accepted", sum.Accepted, sum.Reflections)
	}
	for _, r := range b.reflections() {
		if r.Gated || r.Result != rollout.ResultAccepted {
			t.Errorf("%+v", r)
		}
	}
}
