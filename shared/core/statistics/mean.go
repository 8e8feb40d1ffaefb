package statistics

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Score is a score of one item.
type Score struct {
	Group string // items of the same group count as one piece of evidence; "" has a group of its own
	Value float64
}

// Estimate is a mean and how sure it is. Error and Interval are NaN if there are fewer than
// two groups.
type Estimate struct {
	N        int     // scores
	Groups   int     // independent pieces of evidence
	Mean     float64 // NaN without a score
	Error    float64 // standard error of Mean
	Interval [2]float64
}

// Mean estimates the mean of a population from which the groups were drawn. Interval contains
// it with that confidence, such as 0.95.
//
// Error is that of Miller, Adding Error Bars to Evals, 2024, equation 4, with the correction
// C/(C−1) for C groups: the square root of the sum, over the groups, of the squared sum of
// their deviations, divided by the number of scores. If each score is a group of its own,
// that is the usual standard error. Interval is Student's with C−1 degrees of freedom.
func Mean(scores []Score, confidence float64) Estimate {
	e := Estimate{N: len(scores), Mean: math.NaN(), Error: math.NaN(), Interval: [2]float64{math.NaN(), math.NaN()}}
	if e.N == 0 {
		return e
	}
	sum := 0.0
	for _, s := range scores {
		sum += s.Value
	}
	e.Mean = sum / float64(e.N)
	groups := sums(scores)
	e.Groups = len(groups)
	if e.Groups < 2 {
		return e
	}
	squares := 0.0
	for _, g := range groups {
		d := g.sum - float64(g.n)*e.Mean
		squares += d * d
	}
	c := float64(e.Groups)
	e.Error = math.Sqrt(squares*c/(c-1)) / float64(e.N)
	reach := student(c-1).Quantile((1+confidence)/2) * e.Error
	e.Interval = [2]float64{e.Mean - reach, e.Mean + reach}
	return e
}

// student returns Student's distribution with that many degrees of freedom.
func student(freedom float64) distuv.StudentsT {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}
}
