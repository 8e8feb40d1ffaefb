package gate

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// source draws the scores of tickets, before and after, from one distribution or two.
type source struct {
	name    string
	samples int // of a ticket
	// draw returns one score of a ticket for a model with the accuracy.
	draw func(r *rand.Rand, difficulty, accuracy float64) float64
}

var sources = []source{
	{"one 0/1 score", 1, func(r *rand.Rand, _, accuracy float64) float64 { return flip(r, accuracy) }},
	{"four 0/1 scores of easy and hard tickets", 4, func(r *rand.Rand, difficulty, accuracy float64) float64 {
		return flip(r, math.Pow(difficulty, 1/accuracy-1)) // the mean over difficulties is the accuracy
	}},
	{"uniform scores", 1, func(r *rand.Rand, _, accuracy float64) float64 { return min(1, 2*accuracy*r.Float64()) }},
	{"scores with a heavy tail", 1, func(r *rand.Rand, _, accuracy float64) float64 {
		return accuracy * math.Exp(2*r.NormFloat64())
	}},
}

func flip(r *rand.Rand, p float64) float64 {
	if r.Float64() < p {
		return 1
	}
	return 0
}

// sample returns the pairs of n tickets.
func (s source) sample(r *rand.Rand, n int, before, after float64) []Pair {
	out := make([]Pair, n)
	scores := make([]float64, 0, 2*n*s.samples)
	draw := func(difficulty, accuracy float64) []float64 {
		from := len(scores)
		for range s.samples {
			scores = append(scores, s.draw(r, difficulty, accuracy))
		}
		return scores[from:]
	}
	for i := range out {
		difficulty := r.Float64()
		out[i] = Pair{strconv.Itoa(1000 + i), draw(difficulty, before), draw(difficulty, after)}
	}
	return out
}

// rate returns how often of repeats accept does.
func rate(repeats int, accept func(seed uint64) bool) float64 {
	n := 0
	for seed := range uint64(repeats) {
		if accept(seed) {
			n++
		}
	}
	return float64(n) / float64(repeats)
}

const (
	alpha   = 0.05
	repeats = 2000
	// tolerance is three standard deviations of a rate of alpha.
	tolerance = 0.0146
)

// TestCandidatesThatMakeNoDifferenceAreRarelyAccepted measures how often the gate accepts
// a candidate whose answers are drawn like those of the current guidance, with the same
// accuracy and independent noise.
func TestCandidatesThatMakeNoDifferenceAreRarelyAccepted(t *testing.T) {
	t.Parallel()
	rule := Rule{Alpha: alpha, Candidates: 1, Resamples: 99, MaxBroken: 1}
	for _, s := range sources {
		for _, n := range []int{10, 20} {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			got := rate(repeats, func(seed uint64) bool {
				rule.Seed = seed
				return Compare(s.sample(r, n, 0.6, 0.6), rule).Accepted
			})
			if got > alpha+tolerance {
				t.Errorf("%s, %d tickets: %.3f of the candidates are accepted, want at most %.3f", s.name, n, got, alpha)
			}
		}
	}
}

// TestRandomisationHoldsAlpha measures the same for the test that decides, with up to 200
// tickets and at two levels. No candidate is accepted that it does not accept.
func TestRandomisationHoldsAlpha(t *testing.T) {
	t.Parallel()
	for _, s := range sources {
		for _, n := range []int{10, 30, 80, 200} {
			r := rand.New(rand.NewPCG(uint64(n), 2))
			atTenth := 0
			got := rate(repeats, func(seed uint64) bool {
				p := randomisation(tabulate(s.sample(r, n, 0.6, 0.6)).differences(), 99, seed)
				if p <= 2*alpha {
					atTenth++
				}
				return p <= alpha
			})
			if double := float64(atTenth) / repeats; got > alpha+tolerance || double > 2*alpha+1.4*tolerance {
				t.Errorf("%s, %d tickets: P is at most %v in %.3f of the cases, and at most %v in %.3f",
					s.name, n, alpha, got, 2*alpha, double)
			}
		}
	}
}

// TestBootstrapAloneAcceptsTooOften shows why the bootstrap does not decide alone.
func TestBootstrapAloneAcceptsTooOften(t *testing.T) {
	t.Parallel()
	s := sources[3]
	r := rand.New(rand.NewPCG(10, 3))
	bootstrapped, randomised := 0, 0
	for seed := range uint64(repeats) {
		d := tabulate(s.sample(r, 10, 0.6, 0.6)).differences()
		if bootstrap(d, alpha, 199, seed)[0] > 0 {
			bootstrapped++
		}
		if randomisation(d, 199, seed) <= alpha {
			randomised++
		}
	}
	if b, p := float64(bootstrapped)/repeats, float64(randomised)/repeats; b < 1.5*alpha || p > alpha+tolerance {
		t.Errorf("of candidates that make no difference the bootstrap accepts %.3f, the randomisation test %.3f", b, p)
	}
}

// TestSumOfThreeTicketsAcceptsAThird compares with the rule of peers on the same data:
// a candidate is accepted if its scores over a minibatch sum up to more than before.
func TestSumOfThreeTicketsAcceptsAThird(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tickets int
		peers   float64 // what the rule of peers accepts: (1 − P of equal sums) / 2
	}{{3, 0.340}, {30, 0.448}} {
		r := rand.New(rand.NewPCG(uint64(c.tickets), 4))
		rule := usual()
		peers, ours := 0, 0
		for seed := range uint64(repeats) {
			pairs := sources[0].sample(r, c.tickets, 0.6, 0.6)
			v := Compare(pairs, Rule{Alpha: alpha, Candidates: 1, Resamples: 20, Seed: seed, MaxBroken: 1})
			if v.After > v.Before {
				peers++
			}
			if v.Accepted {
				ours++
			}
			if c.tickets < rule.MinPairs && v.Reason != TooFew {
				t.Fatalf("a verdict on %d tickets is %s", c.tickets, v.Reason)
			}
		}
		if got := float64(peers) / repeats; math.Abs(got-c.peers) > 0.033 {
			t.Errorf("the rule of peers accepts %.3f with %d tickets, want about %.3f", got, c.tickets, c.peers)
		}
		if got := float64(ours) / repeats; got > alpha+tolerance {
			t.Errorf("ours accepts %.3f with %d tickets, want at most %.3f", got, c.tickets, alpha)
		}
	}
}

// TestOneOfManyCandidates checks that judging more candidates at once does not make it
// more likely that one is accepted by chance.
func TestOneOfManyCandidates(t *testing.T) {
	t.Parallel()
	const candidates = 8
	r := rand.New(rand.NewPCG(5, 5))
	rule := Rule{Alpha: alpha, Candidates: candidates, Resamples: 199, MaxBroken: 1}
	for _, s := range sources[:2] {
		got := rate(repeats/4, func(seed uint64) bool {
			one := false
			for range candidates {
				d := tabulate(s.sample(r, 40, 0.6, 0.6)).differences()
				one = one || randomisation(d, 400, seed) <= rule.alpha()
			}
			return one
		})
		if got > alpha+2*tolerance {
			t.Errorf("%s: one of %d candidates is accepted in %.3f of the cases, want at most %.3f",
				s.name, candidates, got, alpha)
		}
	}
}

// TestImprovementsAreAccepted checks that the gate is not only strict.
func TestImprovementsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source        int
		tickets       int
		before, after float64
		want          float64 // at least so often
	}{{0, 60, 0.6, 0.9, 0.95}, {0, 150, 0.6, 0.8, 0.95}, {1, 40, 0.6, 0.8, 0.95}, {2, 60, 0.4, 0.6, 0.8}} {
		r := rand.New(rand.NewPCG(6, 6))
		rule := Rule{Alpha: alpha, Candidates: 1, Resamples: 99, MaxBroken: 0.2}
		got := rate(200, func(seed uint64) bool {
			rule.Seed = seed
			return Compare(sources[c.source].sample(r, c.tickets, c.before, c.after), rule).Accepted
		})
		if got < c.want {
			t.Errorf("%s, %d tickets: a candidate that lifts %v to %v is accepted in %.2f of the cases, want %.2f",
				sources[c.source].name, c.tickets, c.before, c.after, got, c.want)
		}
	}
}

// TestDecisionsHoldAlpha measures the gate and its confirmation together: for candidates
// that make no difference, and for such as know the gate's tickets by heart.
func TestDecisionsHoldAlpha(t *testing.T) {
	t.Parallel()
	s := sources[0]
	rule := Rule{Alpha: alpha, Candidates: 1, Resamples: 20, MaxBroken: 1}
	for _, c := range []struct {
		name    string
		atGate  float64 // the candidate's accuracy on the gate's tickets
		atMost  float64
		atLeast float64
	}{{"no difference", 0.6, 0.01, 0}, {"knows the gate's tickets", 1, alpha + tolerance, 0.005}} {
		r := rand.New(rand.NewPCG(7, 7))
		got := rate(repeats, func(uint64) bool {
			gate := Compare(s.sample(r, 40, 0.6, c.atGate), rule)
			return Decide(gate, Compare(s.sample(r, 40, 0.6, 0.6), rule)).Accepted
		})
		if got > c.atMost || got < c.atLeast {
			t.Errorf("%s: %.4f are accepted, want from %v to %v", c.name, got, c.atLeast, c.atMost)
		}
	}
}
