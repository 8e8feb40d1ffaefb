// Package guidance holds the rules by which a rollout's guidance changes: what a
// model that reflects may propose, what is refused, and what the next step is.
//
// Guidance is the text that prompts of a mission are built with: a scaffold, which
// users write and reflection never changes, and numbered entries, which reflection
// improves. Each change makes a new step, which names the step it was made from.
//
//	tickets, answers, labels
//	       │ Summarise                       one prompt a ticket
//	       ▼
//	  ParseSummary ──▶ Summary
//	                      │ Critique         one prompt for several summaries
//	                      ▼
//	             ParseProposals ──▶ []Operation
//	                                    │ Consolidate        one prompt
//	                                    ▼
//	                               ParsePlan ──▶ Plan ──▶ CopyGuard, against every ticket
//	                                               │
//	                          Guidance of step n ──┴─▶ Apply ──▶ Guidance of step n+1
//
// # What a plan may do
//
// A plan is a list of operations: add, rewrite, merge and drop, each with a reason and
// with the tickets that are evidence for it. Operations name entries by the numbers of
// the guidance that the plan was made for. They are applied in a canonical order, so
// that the order in which models answered never matters. Entries are normalised,
// entries that repeat an earlier one are joined to it, and the numbers are dense again.
//
// # What is refused
//
// A model's answer is hostile input. Its size is bounded before it is parsed. It is
// exactly what was asked for, or it is refused as a whole with one Refusal of a closed
// set, and changes nothing. Limits are enforced here, whatever the prompt says about
// them. An entry is one line of text without control characters, so that it can't
// imitate a second entry. A text with five words in a row of a ticket would teach the
// answer to that ticket instead of a rule: the CopyGuard finds it.
//
// The package does no I/O, reads no clock and draws no random numbers: the same
// answers make the same bytes everywhere (I10). Functions never change their arguments,
// so that values may be shared between goroutines.
package guidance
