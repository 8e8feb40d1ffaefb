// Package worker is the loop of a GPU worker: it pulls shards from a queue, lets
// an Executor answer their items, and commits the rows.
//
//	receive ─▶ claim ─▶ ack ─▶ load ─▶ answer ─▶ put result ─▶ commit ─▶ ShardDone
//	                                     │ ▲
//	                                     │ └─ checkpoint, every CheckpointInterval
//	                                     ├──▶ drain or pause: checkpoint, release
//	                                     ├──▶ allowance used up: checkpoint, release, wait for more
//	                                     └──▶ end of the run: checkpoint, seal
//
// Create a Worker with New and call Run. Run returns when the worker has
// drained. Each message takes these steps, in this order:
//
//  1. Receive. The worker asks the queues of its pool for as many messages as
//     keep the engine full (see wanted). A message names one shard of one run.
//     A message that can't be decoded goes to the dead-letter queue.
//  2. Claim. The worker reads the run's control document, at most 5 s old (I9),
//     and the shard's document. It claims the shard by compare-and-swap, which
//     raises the attempt, the shard's fencing token. It claims a shard that is
//     pending, and a running one whose holder is dead or has left it. The shard
//     is in the worker's list of held shards before the claim is written, so
//     that every heartbeat newer than the claim lists it.
//  3. Ack. The message is acknowledged as soon as the claim holds. From then on
//     the heartbeat stands for the shard: if the worker dies, reclaim finds it
//     and coordinate sends another message.
//  4. Load. The worker reads the shard's lines by a ranged get, and the rows of
//     the last checkpoint. It retries faults that may pass for about 10 s, then
//     releases the shard.
//  5. Answer. Executor.Run answers the items that have no row. Shards
//     of a run begin their items in the order of their claims, so that the
//     engine stays full from one shard to the next. The runs of the held shards
//     begin requests in turn, by their weights (see slots).
//  6. Checkpoint. At every interval the rows so far go to a create-only object,
//     then the shard's document names it.
//  7. Result object. When every item has its row, all rows go to one
//     create-only object, in item order, whose name holds the attempt.
//  8. Commit. A compare-and-swap makes the shard done and names the object. It
//     fails for a worker that is no longer the holder.
//  9. ShardDone. The worker tells coordinate. The event is a hint: the document
//     decides, and reclaim finds a shard whose event was lost.
//
// The result object is durable before the document names it, and the document
// is written before the event is sent. A crash between two steps therefore
// loses time and no row.
//
// # Drain
//
// Drain, a preemption notice (WatchNotices) or a mark of the control plane ends
// the worker in an orderly way. It stops receiving, releases shards that have
// not begun, and begins no more items. Requests in flight go on if one of them
// is likely to end within three quarters of the budget. Then the worker saves
// checkpoints, releases its shards, and writes a last heartbeat in the state
// gone. A pause of the run stops its shards in the same way, and the end of the
// run seals them.
//
// # Budgets
//
// In a run with a budget in tokens or dollars, a message says how much of each its shard may
// spend in all attempts. Requests begin as far as that reaches (see allowance). A shard that
// has used it up is released; coordinate sends it again when the budget has more for it.
// Heartbeats say what each shard has spent, so that the next holder can count what a
// crashed one takes with it. A message whose allowance is spent claims nothing. A worker
// that knows no price refuses shards of a run with a budget in dollars, and the run pauses.
//
// With limits.fail_fast, the first failed item stops the run's shards of this worker at
// once, and the worker tells coordinate without waiting for the end of the shard.
//
// # Self-fencing
//
// One heartbeat document is the lease of all held shards. The lease counts from
// the time at which the last successful heartbeat was sent, and is shorter than
// the time after which others take the worker for dead. A worker that can't
// renew it in time writes nothing more, cancels its requests, and Run returns a
// fault of kind Fenced (I11). The process may start again under another ID.
//
// # What the package never does
//
// It does not know engines or dialects: rows are bytes that an Executor makes.
// It starts no process, handles no signal and opens no store: it works over the
// ports of package host.
package worker
