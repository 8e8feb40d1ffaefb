package selection

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// groups draws groups in the order of decodes and samples. Few answers and scores are in
// use, so that ties are frequent.
var groups = rapid.Custom(func(t *rapid.T) Group {
	g := Group{Ticket: "t", Label: rapid.SampledFrom([]string{"", "A", "B", "C"}).Draw(t, "label")}
	samples := rapid.IntRange(1, 4).Draw(t, "samples")
	for i := range rapid.IntRange(0, 8).Draw(t, "members") {
		m := Member{Decode: i / samples, Sample: i % samples}
		if m.Cause = rapid.SampledFrom([]string{"", "", "", Unparsable, "engine"}).Draw(t, "cause"); m.Cause == "" {
			m.Answer = rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "answer")
		}
		if m.Scored = m.Cause != "engine" && rapid.Bool().Draw(t, "scored"); m.Scored {
			m.Score = rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.7, 1, math.NaN()}).Draw(t, "score")
		}
		g.Members = append(g.Members, m)
	}
	return g
})

// twin selects by the rules as the policies' help texts say them, one elimination after
// the other.
func twin(policy string, g Group) int {
	var left []int
	votes := map[string]int{}
	for i, m := range g.Members {
		if m.Cause == "" {
			left = append(left, i)
			votes[m.Answer]++
		}
	}
	keepBest := func(value func(Member) float64) {
		best := math.Inf(-1)
		for _, i := range left {
			best = max(best, value(g.Members[i]))
		}
		left = slices.DeleteFunc(left, func(i int) bool { return value(g.Members[i]) < best })
	}
	score := func(m Member) float64 {
		if !m.Scored || math.IsNaN(m.Score) {
			return math.Inf(-1)
		}
		return m.Score
	}
	vote := func(m Member) float64 { return float64(votes[m.Answer]) }
	switch policy {
	case "vote_strength":
		keepBest(vote)
		keepBest(score)
	case "best_score":
		keepBest(score)
		keepBest(vote)
	case "label_match":
		if g.Label == "" || votes[g.Label] == 0 {
			return twin("vote_strength", g)
		}
		left = slices.DeleteFunc(left, func(i int) bool { return g.Members[i].Answer != g.Label })
		keepBest(score)
	}
	if len(left) == 0 {
		return -1
	}
	return left[0]
}

func TestPoliciesEqualTheirTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := groups.Draw(t, "group")
		for _, p := range policies() {
			if got, want := p.Select(g, 0.5).Member, twin(p.Name, g); got != want {
				t.Fatalf("%s selects member %d, want %d", p.Name, got, want)
			}
		}
	})
}

// TestArrivalOrderChangesNothing checks that members may come in any order: the same
// member is selected, wherever it stands, and all numbers are equal to the last bit.
func TestArrivalOrderChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := groups.Draw(t, "group")
		other := g
		other.Members = slices.Clone(g.Members)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		r.Shuffle(len(other.Members), func(i, j int) {
			other.Members[i], other.Members[j] = other.Members[j], other.Members[i]
		})
		if g.Stats() != other.Stats() {
			t.Fatalf("the statistics are %+v and %+v", g.Stats(), other.Stats())
		}
		for _, p := range policies() {
			a, b := p.Select(g, 0.5), p.Select(other, 0.5)
			if a.Member >= 0 && compareNames(g.Members[a.Member], other.Members[b.Member]) != 0 {
				t.Fatalf("%s selects %+v and %+v", p.Name, g.Members[a.Member], other.Members[b.Member])
			}
			a.Member = b.Member
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("%s selects\n%+v and\n%+v", p.Name, a, b)
			}
		}
	})
}

// hasWinner reports whether one answer has the most votes: the names of members decide a
// tie.
func hasWinner(g Group) bool {
	votes := count(g).sorted()
	return len(votes) < 2 || votes[0].Count > votes[1].Count
}

// TestExchangingEqualSamplesChangesOnlyTheIndex checks that nothing but the index depends
// on which of the samples gave an answer.
func TestExchangingEqualSamplesChangesOnlyTheIndex(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := groups.Filter(hasWinner).Draw(t, "group")
		for i := range g.Members { // one best score for all, so that no tie depends on names
			g.Members[i].Scored = false
		}
		p := rapid.SampledFrom(policies()).Draw(t, "policy")
		a := p.Select(g, 0.5)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		names := r.Perm(len(g.Members))
		other := g
		other.Members = slices.Clone(g.Members)
		for i, name := range names {
			other.Members[i].Decode, other.Members[i].Sample = g.Members[name].Decode, g.Members[name].Sample
		}
		b := p.Select(other, 0.5)
		a.Member, b.Member = 0, 0
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("with other names %s selects\n%+v, not\n%+v", p.Name, b, a)
		}
	})
}

// TestSelectionIsConsistent checks what must hold for every group.
func TestSelectionIsConsistent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := groups.Draw(t, "group")
		s := rapid.SampledFrom(policies()).Draw(t, "policy").Select(g, 0.5)
		answered, first := 0, 0
		for i, v := range s.Votes {
			answered += v.Count
			if i > 0 && (v.Count > s.Votes[i-1].Count || v.Answer == s.Votes[i-1].Answer) {
				t.Fatalf("the votes are %+v", s.Votes)
			}
			first = s.Votes[0].Count
		}
		if (s.Member < 0) != (answered == 0) || s.Member < 0 && s.Review != NoAnswer {
			t.Fatalf("of %d answers it selects member %d for review %q", answered, s.Member, s.Review)
		}
		if s.Member < 0 {
			return
		}
		if m := g.Members[s.Member]; m.Cause != "" || m.Answer != s.Answer {
			t.Fatalf("the answer of %+v is %q", m, s.Answer)
		}
		if s.Agreement != float64(first)/float64(answered) {
			t.Fatalf("the agreement is %v of %+v", s.Agreement, s.Votes)
		}
		if (s.LabelMatch == nil) != (g.Label == "") || s.LabelMatch != nil && *s.LabelMatch != (s.Answer == g.Label) {
			t.Fatalf("the answer %q matches the label %q: %v", s.Answer, g.Label, s.LabelMatch)
		}
	})
}

// TestAdvantagesAreStandardised checks that advantages have the mean 0 and the spread 1,
// or are all 0.
func TestAdvantagesAreStandardised(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := groups.Draw(t, "group")
		s := g.Stats()
		sum, squares, n := 0.0, 0.0, 0
		for _, m := range g.Members {
			if a, ok := s.Advantage(m); ok {
				sum, squares, n = sum+a, squares+a*a, n+1
			}
		}
		want := float64(n)
		if s.Spread == 0 {
			want = 0
		}
		if n != s.Scored || math.Abs(sum) > 1e-9 || math.Abs(squares-want) > 1e-9 {
			t.Fatalf("%d advantages have the sum %v and the sum of squares %v; %+v", n, sum, squares, s)
		}
	})
}
