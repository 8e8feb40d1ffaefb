// Package leaderboard compares the variants of ended trials: which is best, which differ, and on
// which tasks.
//
//	summary.json ─▶ counts of each variant ────────────────────────────────────────────┐
//	trials.jsonl ─▶ scores by variant and task ─▶ means, pairs, pass@k, unsolved tasks ─┼▶ Report ─▶ text, JSON, page
//	completions.jsonl ─▶ answers of the tasks on which two variants differ most ────────┘
//
// What is compared is paired by task, and all trials of a task count as one piece of evidence:
// tasks differ from each other far more than variants do. Trials that the infrastructure lost, and
// answers without a score, are in no number here but the counts.
//
// Task ids and answers are hostile: the writers of text and page make them harmless. The package
// only reads, and the same files give the same report.
package leaderboard
