package host

import (
	"rollout/shared/config"
	"rollout/shared/core/health"
)

// Timings are a deployment's as the engine takes them.
func Timings(h config.Health) health.Timings {
	return health.Timings{Interval: h.Interval.Std(), SelfFence: h.SelfFence.Std(),
		FailureTimeout: h.FailureTimeout.Std(), SkewBudget: h.SkewBudget.Std()}
}
