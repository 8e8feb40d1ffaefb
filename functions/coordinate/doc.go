// Package coordinate is the single writer of a run's progress. It takes events
// in batches, lets the pure core (shared/core/run) decide, and performs what was
// decided.
//
//	events ─▶ load ─▶ inherit ─▶ observe ─▶ decide ─▶ save ─▶ perform ─▶ clear ─▶ acknowledge
//	           ▲                              ▲        │         │
//	           └─────────── conflict ─────────┼────────┘         │
//	                                          └──── follow-ups ──┘
//
// HandleBatch decodes messages and groups them by run. For each run, Apply takes
// these steps:
//
//  1. Load the manifest and the coordinator document, or take them from memory.
//     Memory may be stale; step 5 finds out.
//  2. Inherit: perform the effects of the loaded state, which another process may
//     have saved and not performed. With Options.Shared, first wait up to
//     peerTimeout for that process to perform them.
//  3. Observe what the step depends on: plan, control and heartbeats, and in runs
//     whose kind has constraints the attributes of shards.
//  4. Decide: run.Step computes the next state from state, events, observation
//     and time. The next state contains the effects to perform. If nothing
//     changes, check that the loaded state is current, and stop.
//  5. Save the next state by compare-and-swap, effects included. On a conflict
//     nothing was performed: begin again at step 1. If the state was saved
//     Options.MostSaves times in the last 10 seconds, wait first and begin again.
//  6. Perform the effects: send work, seal shards, set control, record pruned
//     variants, ask for plan and files. Performing may yield follow-up events: begin again with them.
//  7. Clear the effects from the saved state, with Options.Shared; otherwise the
//     next save replaces them.
//
// The order is what makes crashes harmless. Effects are saved before they are
// performed, so that a crash loses none, and every effect may be performed twice.
// Messages are acknowledged last, so that an event whose step did not happen is
// delivered again. An event may come late, twice, out of order or never:
// documents decide, events only say that it is time to look.
//
// A Coordinator keeps no state that matters. Any number may run at once, ordered
// by compare-and-swap alone. It never answers an item, reads an input line or
// touches a result.
package coordinate
