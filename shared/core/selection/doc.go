// Package selection chooses one answer for each ticket of a rollout, and says what the
// ticket teaches.
//
// A rollout answers each ticket several times. The answers, parsed and graded, are the
// members of the ticket's group. A policy selects one of them:
//
//	                     ┌─ Policy.Select ─▶ Selection ─▶ selections.jsonl
//	members ─▶ Group ────┤                       ├─ Teaches ─▶ reflection
//	                     │                       └─ Review ──▶ manual-review queue
//	                     └─ Group.Stats ───▶ mean, spread, agreement
//	                                             └─ Advantage ─▶ trajectories.jsonl
//
// Answers and labels are compared byte by byte: the caller normalises both in the same way
// before. A member without an answer has no vote, and one without a score does not count
// in the statistics: an engine's failure says nothing about the model, and a score of 0
// in its place would look like a wrong answer.
//
// The package is pure. The order in which members arrive changes no result but the index
// of the selected member. Functions may be called concurrently.
package selection
