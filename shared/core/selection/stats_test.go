package selection

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rollout/shared/core/identity"
)

func TestStats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, group  string
		scored       int
		mean, spread float64
	}{
		{"no members", "-", 0, 0, 0},
		{"no scores", "- A A", 0, 0, 0},
		{"one member", "- A=0.5", 1, 0.5, 0},
		{"half are right", "- A=1 A=1 A=0 A=0", 4, 0.5, 0.5},
		{"failed requests are no zeros", "- A=1 !engine A=1", 2, 1, 0},
		{"all requests failed", "- !engine !engine", 0, 0, 0},
		{"graded", "- A=1 A=2 A=3 A=6", 4, 3, math.Sqrt(3.5)},
		{"other answers with equal scores", "- A=0 B=0", 2, 0, 0},
		{"other answers without scores", "- A B", 0, 0, 0},
		{"equal answers with other scores", "- A=0.5 A=0.25", 2, 0.375, 0.125},
		{"all answers are unparsable", "- !unparsable=0 !unparsable=0", 2, 0, 0},
		{"one answer is unparsable", "- A !unparsable", 0, 0, 0},
		{"equal scores whose sum is rounded", "- A=0.1 A=0.1 A=0.1", 3, 0.1, 0},
	} {
		s := parseGroup(t, c.group).Stats()
		if want := (Stats{c.scored, c.mean, c.spread}); s != want {
			t.Errorf("%s: %+v, want %+v", c.name, s, want)
		}
	}
}

func TestAdvantage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, group string
		want        []float64 // NaN: none
	}{
		{"half are right", "- A=1 A=0", []float64{1, -1}},
		{"one of five is right", "- A=0 A=0 A=0 A=1 A=0", []float64{-0.5, -0.5, -0.5, 2, -0.5}},
		{"all are equal", "- A=0.1 A=0.1 A=0.1", []float64{0, 0, 0}},
		{"failed requests have none", "- A=1 !engine A=0 A", []float64{1, math.NaN(), -1, math.NaN()}},
	} {
		g := parseGroup(t, c.group)
		s := g.Stats()
		for i, m := range g.Members {
			got, ok := s.Advantage(m)
			want := c.want[i]
			if ok == math.IsNaN(want) || ok && math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: member %d has the advantage %v, %v, want %v", c.name, i, got, ok, want)
			}
		}
	}
}

// TestStatsHaveTheGoldenDigest pins means, spreads and advantages of random scores. A
// processor that fuses a product with a sum changes some of them.
func TestStatsHaveTheGoldenDigest(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	var numbers []byte
	add := func(x float64) { numbers = binary.LittleEndian.AppendUint64(numbers, math.Float64bits(x)) }
	for range 200 {
		var g Group
		for i := range 8 {
			g.Members = append(g.Members, Member{Sample: i, Score: r.Float64(), Scored: true})
		}
		s := g.Stats()
		add(s.Mean)
		add(s.Spread)
		for _, m := range g.Members {
			a, _ := s.Advantage(m)
			add(a)
		}
	}
	const want = "9a792f6e39a3bca75d83443b51e9d58c7f308cc9a4e1a5df4ba7eabd869f6919"
	if got := identity.Content(numbers).String(); got != want {
		t.Errorf("the digest is %s, want %s", got, want)
	}
}

// TestScoresWithoutValue checks that a score that would spoil every sum counts as missing.
func TestScoresWithoutValue(t *testing.T) {
	t.Parallel()
	g := Group{Members: []Member{{Answer: "A", Score: 0.25, Scored: true}}}
	for i, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, 1.1e100} {
		g.Members = append(g.Members, Member{Sample: i + 1, Answer: "A", Score: x, Scored: true})
	}
	if s := g.Stats(); s != (Stats{Scored: 1, Mean: 0.25}) {
		t.Errorf("the statistics are %+v", s)
	}
	for _, p := range policies() {
		if s := p.Select(g, 0); s.Member != 0 || s.Teaches != NoLesson {
			t.Errorf("%s selects member %d, which teaches %q", p.Name, s.Member, s.Teaches)
		}
	}
}

// TestZeroHasNoSign checks that the two zeros of floating point numbers are one score.
func TestZeroHasNoSign(t *testing.T) {
	t.Parallel()
	g := Group{Members: []Member{{Answer: "A", Score: math.Copysign(0, -1), Scored: true}}}
	if s := g.Stats(); math.Signbit(s.Mean) {
		t.Errorf("the mean is %v", s.Mean)
	}
}

// TestLargestScoresDoNotOverflow checks the bound of scores.
func TestLargestScoresDoNotOverflow(t *testing.T) {
	t.Parallel()
	g := Group{Members: slices.Repeat([]Member{{Score: maxScore, Scored: true}, {Score: -maxScore, Scored: true}}, 1000)}
	if s := g.Stats(); math.Abs(s.Mean/maxScore) > 1e-12 || math.Abs(s.Spread/maxScore-1) > 1e-12 {
		t.Errorf("the mean is %v, the spread %v", s.Mean, s.Spread)
	}
}
