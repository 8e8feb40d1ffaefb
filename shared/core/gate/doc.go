// Package gate decides whether candidate guidance replaces the current one.
//
// Both answer the same tickets with the same seeds. The gate compares their scores ticket
// by ticket, and a candidate that wins must win again on other tickets:
//
//	pairs of the gate's tickets ─────▶ Compare ─▶ Verdict ──┐
//	                                                        ├─ Decide ─▶ accepted or why not
//	pairs of tickets disjoint from it ▶ Compare ─▶ Verdict ─┘
//
// Compare asks, in this order, whether there are enough tickets, whether the mean score
// rose, whether chance explains the rise, and whether too many right answers became
// wrong. Chance is judged by a test that is exact for the question that matters most:
// how often is a candidate accepted that makes no difference? With one 0/1 score a ticket
// it is McNemar's test; otherwise a randomisation test, and a paired bootstrap besides.
//
// Peers accept a candidate whose scores over three tickets sum up to more than before. Of
// candidates that make no difference, that accepts a third.
//
// The package is pure: the same pairs and rule, with its seed, give the same verdict to
// the last bit on every machine, in whatever order the pairs come. Sums are exact, and
// functions of the math package whose last bit differs between machines are not used.
// Functions may be called concurrently. Compare takes time in proportion to the number
// of tickets × resamples.
package gate
