// Package grade turns answers into scores.
//
//	answer ─▶ Case{prompt, answer, expected} ─▶ Grader ─▶ Score ─▶ members of the row ─▶ totals ─▶ summary
//
// Grader is a port. Package rules has the graders that need nothing but the
// answer, and package grading of the workers the client of scoring services. All
// pass gradetest. Package judge has the questions for a model that judges, which are
// asked as items of the run: until then, a row's score is Open.
//
// A Score is a number, or none with a cause. The two are never mixed up:
//
//   - An answer that is wrong, or does not have the form that was asked for,
//     scores 0. That is a fact about the model.
//   - A row without a usable expected value, and a service that is down, slow or
//     answers nonsense, give no score. That says nothing about the model, and a 0
//     in its place would look like one.
//
// A row has the scores of all graders of its run and their weighted mean, which
// is null as soon as one of them is missing: a mean of the others would compare
// rows by different measures. AppendMembers writes these members, ReadRow reads
// them, and Totals sums them up for the summary.
//
// The package does no I/O and reads no clock. The same answer gets the same
// score on every machine (I10, see shared/README.md).
package grade
