// Package kind is the table of the kinds of run: what differs between them, one
// value a kind.
//
//	config ─▶ submit: Complete, Roles ─▶ plan: Job, Grow, RoleOf ─▶ coordinate: Constraints ─▶ worker of Executor
//	                                                    status, explain: Trains ◀─┴─ finalize: Artifacts ◀─┘
//
// Functions, workers and status look a run's kind up by the name in its manifest,
// and follow the fields of the entry. None of them knows a kind by name. A Kind is
// plain data and, where data does not do, functions over types that all of them
// share. The package keeps no state; the functions of a Kind keep none either.
//
// # A new kind
//
//  1. Its name and its settings in package config, with their checks: an unknown
//     kind is refused there first.
//  2. A file of this package that returns its Kind, and a line in builtin.
//  3. An executor under gpuworker/executors, if none of those that exist answers
//     its items, and the executor's name in package config.
//  4. Its keys in examples/README.md, and an example beside it.
package kind
