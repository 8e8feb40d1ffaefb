// Package pretrain teaches a tiny model to continue text, from nothing.
//
// All that decides the result is in a Recipe and the documents: the same ones
// give the same bytes on any machine, with any number of threads, in one go or
// in pieces. What a step learns from is a function of the seed and the step
// alone, so a checkpoint is the parameters, the optimizer's two moments and
// the number of steps done.
//
// The package never looks at a clock.
package pretrain
