// Package run is the state machine of a run: the pure core of the coordinator,
// which alone decides about a run's progress.
//
//	Planning ─▶ Running ⇄ Pausing/Paused ─▶ Ending ─▶ Finalizing ─▶ Completed | CompletedWithErrors |
//	               │                                                Stopped | Expired | OverBudget | Failed
//	               └─▶ Interrupted (a pause that not all workers acknowledged in time; resumable)
//
// # One step
//
// The function coordinate serves a run in a loop: load, step, save, perform.
//
//  1. It loads the State of the run from coordinator/<run>. If the Effects in it
//     may not have been performed, because a coordinator crashed, it performs
//     them first.
//  2. It reads the documents that Observed holds: the plan, the desired state in
//     control/<run>, and the heartbeats.
//  3. It calls Step with the state, the observed documents, the run's Rules, the
//     events that arrived, and the present time. Step returns the next state.
//  4. It saves that state by compare-and-swap. If another coordinator saved
//     first, it starts again with step 1, and the events stay unacknowledged.
//  5. It performs the Effects of the saved state, in order but for messages of work,
//     which may travel together, and acknowledges the events. The next step replaces
//     the effects.
//
// Effects are therefore performed at least once, and only after the state that
// knows of them is saved. Each is a hint or idempotent: performing it twice, or
// late, changes no result.
//
// # Events
//
// An event may arrive late, twice, out of order or never. Documents decide: an
// event tells Step only where to look, and a lost event is made up for by the
// next Wakeup from reclaim.
//
//   - ShardDone counts when its shard first enters the CommitLog; a repetition
//     changes nothing. A shard that was never sent is rejected. With
//     Rules.FailFast the first failed item ends the run.
//   - ShardLost sends the shard again with the next generation, unless the
//     message of another generation is in flight by now. With Rules.FailFast, a loss whose
//     worker vanished ends the run.
//   - ShardReleased sends it again at once: its holder gave it back.
//   - ShardUsedUp has it wait for a larger allowance. A report about an older allowance
//     changes nothing.
//   - ItemFailed ends a run with Rules.FailFast, before the shard is done.
//   - InputMissing pauses the run: the input or the model is gone. A user restores
//     it and resumes the run.
//   - RequestsRefused pauses the run: no request is answered, for a cause that only a
//     user can mend. Its control remembers what the requests met. While another worker
//     has answers, it changes nothing: the server of the one that reports it is at fault.
//   - InputChanged ends the run: its input is not what was planned.
//   - Reevaluate carries no news. Control, plan, deadline and grace are looked at
//     in every step, so they need no event of their own.
//   - Wakeup is Reevaluate that also repeats the requests to plan and finalize
//     which were not answered.
//   - VariantPruned, which coordinate itself makes, ends the dispatch of a variant. It
//     is rejected when the state can hold no further variant: the sender may repeat it.
//   - Finalized gives the counts of the written files. It is the last event: the
//     run enters its terminal phase.
//
// Step takes in all events first, and then the desired state, the plan and the
// limits. It decides last what to send. A step that pauses or ends the run
// therefore sends nothing, whatever else arrived with that news.
//
// # Gaps
//
// A run whose kind has Constraints may hold shards back: a chain has one shard in
// flight at a time, a variant or the run at most so many. Dispatch skips such a shard
// and sends later ones; the state remembers it in Gaps and sends it when it may. A
// skipped shard was never sent: it is not open, and cannot be done. Step needs the
// attributes of shards for that; ScanPages says of which. When a step has looked at
// as many shards as one step may, it has the effect Continue.
//
// Of a pruned variant nothing more is sent. A step saves that with the effect
// RecordPruned. From the next step on, when the record exists, the variant's shards
// that were not sent become done as the commit frontier comes to them. Their items get
// error rows of the class pruned, and are no errors of the run: it is Completed if no
// other item failed.
//
// # Budget
//
// A run with a budget, in tokens, in dollars or of both, sends one shard for each worker at
// first, then no more than were done, and at most as many as the rest of the budget pays for
// at the mean cost of a shard. Each gets an allowance: what it may spend in all its attempts.
// What open shards may spend and what done shards have spent is never more than the budget,
// but for what a holder overspends: by its last requests, which are in flight when the
// allowance is used up, and in dollars by a machine's boot and idle time before a
// request. See Allowance for the states of a shard.
//
// Money is what the run's bill has: tokens at their price, the machines' time, and the control
// plane by the number of shards that were sent.
//
// A shard that has used up its allowance is handed back and waits. It is sent again,
// with more, when a shard that is done leaves some, and before any new shard. When no
// shard is in flight, one shard may spend all that is left. So the run goes on as long
// as anything is left, and ends as OverBudget when nothing is: each hand-back tells
// that more is spent, and a shard that waits is not sent again without more.
//
// # Pause and end
//
// A pause stops dispatch at once. Holders learn of it from control/<run> within
// a heartbeat interval, finish their requests within Rules.Grace, and release
// their shards. The run is Paused when all living workers have acknowledged the
// control sequence, and Interrupted when Rules.Grace + Rules.Settle are over
// before that. Both count from when control/<run> says so: a coordinator that crashes
// after it has decided a pause or an end tells holders late. On resume, every shard that
// was sent and is not done is sent again.
//
// An end freezes the frontier: the shards sent so far, but those that are skipped. Holders commit what they
// have. When no holder is left, or the grace is over, the open shards below the
// frontier are sealed (Done without a result). When all of them are done, the run
// is Finalizing: finalize writes the files that users read, with an error row for
// each item that has no answer.
//
// The package does no I/O and reads no clock, and the same arguments give the
// same result. The invariants I1 to I11 are in shared/README.md.
package run
