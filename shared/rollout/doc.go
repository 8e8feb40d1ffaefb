// Package rollout has the formats of a rollout: a run that answers each ticket several
// times under the guidance of its mission, and selects an answer of each.
//
//	tickets.jsonl ─▶ Import ─▶ book: tickets + order of the epoch
//	book, Stage   ─▶ AppendLines ─▶ items of a global batch, one line a member
//	rows          ─▶ Reader ─▶ groups ─▶ selection ─▶ WriteArtifacts
//
// # Batches
//
// The tickets have one order, which the config's seed decides. A global batch is a slice
// of it, and one object that is appended to the run's plan. Its Stage, an object beside
// it, says which tickets these are and which guidance they see: it is written first, and
// both are functions of the manifest and of what was planned before (I10). So all tickets
// of a batch see one guidance (I6), whatever happens to the workers.
//
// A ticket has a member for each decode and sample: an item of the run, whose line carries
// the request, and under "ticket" all that the ticket has but its text. Only the request
// is sent: a label never is.
//
// # What a ticket is
//
// A line {"group_id", "mission", "content" or "messages", "label"}. The key of a ticket is
// its group and its label: one group may come again with another label. A line that is no
// ticket is a failure of its own, and the other ones go on.
//
// Package kind calls all of this. The package keeps no state.
package rollout
