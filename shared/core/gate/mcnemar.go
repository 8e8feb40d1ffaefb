package gate

import "rollout/shared/core/statistics"

// mcnemar returns the P of McNemar's exact one-sided test for tickets with one 0/1 score
// before and after: the probability that at least so many of the changed tickets are
// fixed, if fixed and broken are equally likely. Tickets that did not change say nothing.
// (McNemar 1947; as an exact binomial test: Agresti, Categorical Data Analysis, 10.1.4.)
func mcnemar(fixed, broken int) float64 { return statistics.UpperTail(fixed+broken, fixed) }
