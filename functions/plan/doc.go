// Package plan cuts a run's input into shards.
//
//	RunSubmitted ─▶ start ─▶ plan document ─▶ one PlanRange for each range of 64 MiB
//	                └▶ grow ────────┘
//	PlanRange    ─▶ cut ─▶ shard table, hash lists, range result
//	                 └──▶ merge ─▶ index entries, repeats, plan document ─▶ PlanAdvanced
//
// A run is planned in these steps:
//
//  1. Start (Submitted): unpack archives into copies, pin the version of what is
//     planned, and write the plan document, which lists the ranges. Then ask for
//     every range that is not merged yet.
//  2. Cut (CutRange): read one range, write its shard table and the hashes of its
//     ids, and last its range result, which says that the others are complete.
//     Ranges are cut in parallel and in any order.
//  3. Merge: take the planned ranges in order, compare their hashes with those of
//     all earlier ranges, write their index entries, and advance the plan
//     document by compare-and-swap. Range k can be dispatched once ranges 0 to k
//     are merged. The call that plans the next range merges it.
//
// The plan of a kind that grows gets further ranges later. When all of its items
// have results, coordinate sends RunSubmitted again. Grow then writes the object that
// the kind makes of the results of what was planned last, create-only, appends it to
// the plan document, and asks for its ranges; they are cut and merged like all
// others. An object without a line completes the plan.
//
// A run that prunes is looked at while it goes on. When all shards before the place of a look are
// done, coordinate sends RunSubmitted again. Look then reads their results, creates the object of
// the look, and records in the plan document what it prunes, from which shard on.
//
// An input whose pinned version is gone, because its folder was copied or restored, is
// planned on under the version that is there if that has the planned bytes (pinAgain).
//
// All objects are create-only and a pure function of the pinned input and of
// committed results, so that repeating a step changes nothing. A problem that
// repeating cannot solve is
// recorded in the plan document, and coordinate acts on it. The package answers
// no item, and reads a line no further than its id, or its request where
// identical requests are asked once.
package plan
