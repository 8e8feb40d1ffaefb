// Package diagnosis explains why a run is where it is: what blocks it, what
// makes it slow, what happens next, and where each of its items is.
//
// Its input is a status.Progress: what the documents say. StatusOf, the
// blockers and the causes are pure functions of it and of a time. An Explainer
// also reads the input, results, checkpoints and output files of a run to find
// an item and its row.
//
// Explanations are texts for people, with codes for programs. The package never
// writes, and never guesses where the documents are silent.
package diagnosis
