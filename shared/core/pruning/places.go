package pruning

import "rollout/shared/core/design"

// Places returns the schedule indexes at which trials of a design are looked at: look k, from 1
// on, reads the trials before place k−1 of the list, and takes effect at place k. So the list has
// one place more than there are looks. The places divide the schedule into parts of about the same
// size, in each of which all variants advance by as many trials, if the order has such parts.
// A design with too few trials for so many looks has fewer, or none.
func Places(d design.Design, looks int) []int {
	unit := 1
	switch d.Order {
	case design.Interleaved:
		unit = d.Variants
	case design.ByTask:
		unit = d.Variants * d.Replications
	}
	trials := d.Trials()
	var places []int
	for k := 1; k <= looks+1; k++ {
		at := trials * k / (looks + 2)
		at = (at + unit - 1) / unit * unit
		if at >= trials {
			break
		}
		if n := len(places); at > 0 && (n == 0 || places[n-1] < at) {
			places = append(places, at)
		}
	}
	if len(places) < 2 {
		return nil
	}
	return places
}
