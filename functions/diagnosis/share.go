package diagnosis

import (
	"fmt"
	"slices"
	"strconv"

	"rollout/functions/status"
	"rollout/shared/figures"
)

// sharesPool returns what other runs take of the pools that the run needs, and why.
func sharesPool(s status.Status) (out []status.Blocker) {
	for _, sh := range s.Shares {
		if sh.Runs < 2 {
			continue
		}
		others := "1 other run"
		if sh.Runs > 2 {
			others = fmt.Sprintf("%d other runs", sh.Runs-1)
		}
		b := status.Blocker{Code: SharesPool,
			Text: fmt.Sprintf("it shares pool %s with %s: its part is %s of the requests, as its weight is %s of %s (%s)",
				sh.Pool, others, figures.Share(sh.Fraction), number(sh.Weight), number(sh.Total), whyWeight(sh))}
		if sh.Fraction < mostOfPool {
			b.Remedy = "wait, or pause others; `[run] priority` in the config of the next run gives that another weight"
		}
		if belowShare(sh) {
			b.Text += fmt.Sprintf("; it has %s of %s now, and gets more as those of the others end",
				figures.Count(sh.Requests), figures.Of(sh.AllRequests, "request"))
		}
		out = append(out, b)
	}
	return out
}

// mostOfPool is the part of a pool from which on it helps little to pause other runs.
const mostOfPool = 0.75

// belowShare reports whether the run has less than half of its part of the requests. A run
// that is taken up just now has none until others end.
func belowShare(s status.Share) bool {
	return float64(s.Requests) < s.Fraction*float64(s.AllRequests)/2 && float64(s.AllRequests)*s.Fraction >= 2
}

// awaitsTurn reports whether all requests in the pool are of other runs.
func awaitsTurn(s status.Share) bool { return s.Runs > 1 && s.Requests == 0 && s.AllRequests > 0 }

// onlyAwaitsTurn reports whether the run has no request anywhere, and awaits its turn in a
// pool.
func onlyAwaitsTurn(shares []status.Share) bool {
	return slices.ContainsFunc(shares, awaitsTurn) &&
		!slices.ContainsFunc(shares, func(s status.Share) bool { return s.Requests > 0 })
}

// whyWeight says where the weight comes from.
func whyWeight(s status.Share) string {
	why := "priority " + s.Priority
	if s.Priority == "" {
		why = "priority " + number(s.PriorityWeight)
	}
	if s.Hurry > 1 {
		why += fmt.Sprintf(", %s times as its deadline comes near", number(s.Hurry))
	}
	return why
}

// number formats with three digits at most.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
