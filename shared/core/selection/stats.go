package selection

import "math"

// Stats are the statistics of a group's scores.
type Stats struct {
	Scored int     // members with a score
	Mean   float64 // of their scores; 0 without any
	Spread float64 // population standard deviation of their scores; 0 without any
}

// Stats returns the statistics of the group's scores. Equal scores have exactly their
// value as the mean, and a spread of 0.
func (g Group) Stats() Stats {
	scores := g.scores()
	s := Stats{Scored: len(scores)}
	switch {
	case differ(scores):
		s.Mean, s.Spread = moments(scores)
	case len(scores) > 0:
		s.Mean = scores[0]
	}
	return s
}

// moments returns the mean and the population standard deviation.
func moments(scores []float64) (mean, spread float64) {
	n := float64(len(scores))
	for _, x := range scores {
		mean += x
	}
	mean /= n
	squares := 0.0
	for _, x := range scores {
		d := x - mean
		squares += float64(d * d) // the conversion rounds the product alike on all machines
	}
	return mean, math.Sqrt(squares / n)
}

// Advantage returns how many spreads the member's score is above the mean of its group,
// whose statistics s are; 0 if the spread is 0. It returns false for a member without a
// score: it has no advantage, not an advantage of 0.
func (s Stats) Advantage(m Member) (float64, bool) {
	score, ok := m.score()
	if !ok || s.Spread == 0 {
		return 0, ok
	}
	return (score - s.Mean) / s.Spread, true
}
