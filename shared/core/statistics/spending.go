package statistics

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Spending divides the probability of a false decision, alpha, among looks at a sample that
// grows: a comparison that is looked at ten times at 5 % is wrong far more often than once
// in twenty.
//
// Each look may use what the function has allowed so far and earlier looks have not used, so
// that the parts of all looks sum up to at most alpha (Lan and DeMets, Discrete Sequential
// Boundaries for Clinical Trials, 1983). They are added as if no look depended on another,
// which is never too much, and needs no assumption about the test.
type Spending struct {
	Alpha float64
	Shape Shape
}

// Shape says how early alpha may be spent.
type Shape string

// The shapes.
const (
	// ShapeObrienFleming spends little before the sample is nearly whole, so that only a clear
	// difference ends a comparison early.
	ShapeObrienFleming Shape = "obrien_fleming"
	// ShapePocock spends nearly evenly.
	ShapePocock Shape = "pocock"
)

// At returns the greatest P that counts at the look when a share of the sample, from 0 to 1,
// is there, and the look before came at the share before; that of the first look is 0.
func (s Spending) At(before, now float64) float64 {
	return max(0, s.spent(now)-s.spent(before))
}

// spent returns how much of Alpha may be used up to that share of the sample.
func (s Spending) spent(share float64) float64 {
	switch share = min(1, share); {
	case share <= 0:
		return 0
	case s.Shape == ShapePocock:
		return s.Alpha * math.Log(1+(math.E-1)*share)
	}
	return 2 * distuv.UnitNormal.Survival(distuv.UnitNormal.Quantile(1-s.Alpha/2)/math.Sqrt(share))
}
