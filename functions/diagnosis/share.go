package diagnosis

import (
	"fmt"
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
		out = append(out, status.Blocker{Code: SharesPool,
			Text: fmt.Sprintf("it shares pool %s with %s: its part is %s of the requests, as its weight is %s of %s (%s)",
				sh.Pool, others, figures.Share(sh.Fraction), number(sh.Weight), number(sh.Total), whyWeight(sh)),
			Remedy: "wait, or pause others; `[run] priority` in the config of the next run gives that another weight"})
	}
	return out
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
