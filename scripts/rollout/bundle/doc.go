// Package bundle packs what others need to see to find out what is wrong with
// a run into one archive: documents, config, queues, machine, the ends of
// logs.
//
// It never packs prompts, answers or secrets: of an item there is its index,
// line and class, its id only hashed unless asked for, and of a failure no
// message, since servers repeat prompts in theirs. It changes nothing but the
// order of dead letters, and its memory and the archive's size are bounded,
// however large the run is.
package bundle
