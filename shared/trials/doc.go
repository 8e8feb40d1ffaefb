// Package trials has the formats of a run of trials: a run that answers each task under several
// variants, several times each, and compares the variants.
//
//	tasks.jsonl ─▶ Append ─▶ items: one line a trial, in the order of the schedule
//	line        ─▶ ShardOf ─▶ variant and chain of its shard
//	rows        ─▶ Publish ─▶ trials.jsonl, grades.jsonl, the sums of the summary
//
// # What a trial is
//
// Package design of the core lays the trials out. Each is an item of the run, in a shard of its
// own, and its line has the request, all that the task has but its prompt under "task", and what
// the trial is under "trial". Only the request is sent: what graders expect never is.
//
// The item index of a trial is its schedule index. Its place (task, variant, replication) is the
// canonical one: seeds are made from it, and two runs are compared by it.
//
// # What a task is
//
// A line {"id", "prompt" or "messages", …}. A file with a line that is no task ends the run before
// anything is asked: a comparison without some of its tasks would be another one.
//
// # Where another executor plugs in
//
// A trial of a prompt is one chat, which the executor of the run's pool asks. What another executor
// needs is in the line: the trial, the task without what graders expect of it, and the seed. It
// changes four places, and neither the schedule nor the sums:
//
//   - config.Variant has its settings, and Run.checkVariants what may stand together.
//   - asker.appendLine writes the request; ShardOf reads what dispatch must know of the line.
//   - The executor answers the line with an output row that repeats its "trial", as rows repeat all
//     members that are not the request's, and has the scores of graders. A trial that ended
//     otherwise has an error row with a class of its own.
//   - VerdictOf says what each class counts as: a trial that its variant lost, or one that nothing
//     can be said about. publisher.add takes in what a row of another form says.
//
// Package kind calls all of this. The package keeps no state.
package trials
