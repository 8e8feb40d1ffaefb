// Package pruning decides which variants of a run of trials are left out while the run goes on.
//
//	design, looks ──Places──▶ where the run is looked at
//	scores of the trials before a place ──Scores.Add──▶ sums by task and variant
//	sums, Rule, Look ──Decide──▶ what each variant came to, and which are pruned
//
// A run is looked at several times, each time at a place of its schedule. A look reads the trials
// before its place alone, and what it prunes takes effect at the place of the next look. So trials
// that are in flight end and count, and which trials there are depends on the scores, not on the
// timing.
//
// The unit of evidence is the task. The repetitions of a task under a variant have one score,
// their mean. Variants are compared on the tasks that have a score under both. A trial without a
// score, such as one that the infrastructure lost, says nothing.
//
// The package is pure: the same scores in the same order give the same decision. Nothing in it may
// be called concurrently on the same value.
package pruning
