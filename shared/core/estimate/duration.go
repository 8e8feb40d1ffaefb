package estimate

import (
	"math"
	"slices"
)

// maxParts is into how many parts of equally many answers a sample's time is divided.
const maxParts = 10

// Duration estimates how many seconds all items take at the pace of the sample. finished
// are the seconds from the sample's begin to each of its answers, in any order. It returns
// false for fewer than four answers.
//
// The interval is that of batch means (Law and Kelton, Simulation Modeling and Analysis,
// 1982, chapter 8): the time of each tenth of the answers is one observation of the pace,
// and Student's interval of their mean is taken on the scale of logarithms, so that it never
// reaches 0.
//
// It speaks about the pace that the sample had, and about no other: servers that come
// or go, other runs, and limits change it. A sample that is hardly larger than the number
// of requests in flight begins and ends with servers that idle, so that the whole file is
// faster than it says.
func Duration(items uint64, finished []float64) (Interval, bool) {
	n := len(finished)
	parts := min(maxParts, n/2)
	if parts < 2 {
		return Interval{}, false
	}
	finished = slices.Sorted(slices.Values(finished))
	whole := finished[n-1]
	if !(whole > 0) {
		return Interval{}, false
	}
	var sum, before float64
	for k := range parts {
		end := finished[(k+1)*n/parts-1]
		share := float64((k+1)*n/parts-k*n/parts) / float64(n)
		d := (end-before)/share/whole - 1 // how much slower this part was than the whole
		sum, before = sum+d*d, end
	}
	deviation := math.Sqrt(sum / float64(parts-1) / float64(parts))
	factor := math.Exp(student(parts-1) * deviation)
	seconds := whole * float64(items) / float64(n)
	return Interval{Value: seconds, Low: seconds / factor, High: seconds * factor}, true
}
