// Package pareto keeps several guidances that are each the best for some tickets.
//
// A candidate that helps one kind of tickets and harms another kind loses every comparison
// of means. It may still be half of what is needed: improved further, it can win. So a
// rollout may keep such candidates, and begin its next reflection with one of them.
//
//	scores by ticket ─▶ Reduce ─▶ the members that stay, with the tickets they are best on
//	                                          │
//	                                          └─ Draw ─▶ the one that a reflection begins with
//
// The members are the front of GEPA (Agrawal et al., 2025): the best ones by ticket, less
// those that others make superfluous. Which guidance is used is not decided here, but by
// package gate.
//
// The package is pure: the same scores, in the same order, give the same result on every
// machine. Functions may be called concurrently.
package pareto
