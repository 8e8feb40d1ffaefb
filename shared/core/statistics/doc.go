// Package statistics says what scores of a sample of items show, and how sure one can be.
//
//	scores of one item, repeated ──▶ Reducer.Reduce ─▶ one score of the item
//	scores of items in groups ─────▶ Mean, Share ────▶ mean, standard error, interval
//	scores of the same items ─┬────▶ Paired ─────────▶ difference, interval, P, what could be seen
//	under two settings        ├────▶ McNemar ────────▶ P, for scores of 0 and 1
//	                          ├────▶ Wilcoxon ───────▶ P, for scores that have an order
//	                          └────▶ Bootstrap ──────▶ interval, for groups of items
//	P of several comparisons ──────▶ Holm ───────────▶ P adjusted for their number
//	looks at a growing sample ─────▶ Spending ───────▶ the P that each look may use
//
// Comparisons of the same items are paired: items differ from each other far more than two
// settings do, and an unpaired test takes that for noise. Items that share a cause, such as
// repetitions of one task, are a group (in statistics a cluster): they count as one piece
// of evidence.
//
// The package is pure: the same values in the same order give the same results. Nothing in
// it may be called concurrently on the same value.
package statistics
