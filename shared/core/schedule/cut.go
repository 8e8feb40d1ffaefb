package schedule

import "rollout/shared/core/interval"

// Cut divides n consecutive items among parts shards: contiguous ranges from 0 on, in
// order, whose sizes differ by at most 1. The first n mod parts ranges have one item more.
// Ranges are empty if there are more parts than items. parts below 1 counts as 1, so that
// a batch can be cut while no worker is alive.
func Cut(n, parts int) []interval.Range {
	n, parts = max(n, 0), max(parts, 1)
	out := make([]interval.Range, parts)
	lo := 0
	for r := range out {
		size := n / parts
		if r < n%parts {
			size++
		}
		out[r] = interval.Range{Lo: lo, Hi: lo + size}
		lo += size
	}
	return out
}
