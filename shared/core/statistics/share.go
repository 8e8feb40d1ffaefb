package statistics

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Share is Mean for scores that are all 0 or 1, whose mean is a share. Its interval is Wilson's
// (Probable inference, the law of succession, and statistical inference, 1927): it stays within 0
// and 1, and also says something if all scores are the same.
//
// Wilson's interval is of independent scores. The groups count as so many of these as give the
// variance that the groups show, at most as many as there are scores (the effective sample size of
// Kish, Survey Sampling, 1965). If the groups do not vary, each of them counts as one.
func Share(scores []Score, confidence float64) Estimate {
	e := Mean(scores, confidence)
	if e.N == 0 {
		return e
	}
	n, groups := float64(e.Groups), float64(e.Groups)
	if variance := e.Error * e.Error * (groups - 1) / groups; variance > 0 { // it is NaN of one group
		n = min(float64(e.N), e.Mean*(1-e.Mean)/variance)
	}
	z := distuv.UnitNormal.Quantile((1 + confidence) / 2)
	middle := (e.Mean + z*z/(2*n)) / (1 + z*z/n)
	reach := z / (1 + z*z/n) * math.Sqrt(e.Mean*(1-e.Mean)/n+z*z/(4*n*n))
	e.Interval = [2]float64{max(0, middle-reach), min(1, middle+reach)}
	return e
}
