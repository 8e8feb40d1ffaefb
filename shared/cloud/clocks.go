package cloud

import (
	"time"

	"rollout/shared/fault"
)

// dateStep is the step of the time in answers.
const dateStep = time.Second

// farOff is the difference from the services' time at which they refuse requests.
const farOff = 5 * time.Minute

// CompareClocks compares a machine's clock with the date of an answer of the provider's services: the
// machine asked and had the answer at these times of its clock. The time of a slow answer is only
// known to lie between the two: only a difference that no delay explains is one. It returns what was
// found or, if the difference exceeds the budget, health.skew_budget, an Invalid error.
func CompareClocks(asked, answered, date time.Time, budget time.Duration, provider string) (string, error) {
	var off time.Duration // of the machine's clock, at least
	switch {
	case asked.After(date.Add(dateStep)):
		off = asked.Sub(date.Add(dateStep))
	case answered.Before(date):
		off = answered.Sub(date)
	}
	if off.Abs() <= budget {
		return "within " + budget.String() + " of " + provider + "'s", nil
	}
	side, effect := "ahead of", "a worker here would claim nothing"
	if off < 0 {
		side = "behind"
	}
	if off.Abs() >= farOff {
		effect = provider + " refuses requests"
	}
	return "", &fault.Error{Kind: fault.Invalid,
		Err: fault.New(fault.Invalid, "this machine's clock is %s %s %s's, and more than %s (health.skew_budget): %s",
			off.Abs().Round(dateStep), side, provider, budget, effect),
		Remedy: "set this machine's clock, such as by timedatectl set-ntp true"}
}
