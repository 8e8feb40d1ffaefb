// Package optimize updates parameters from gradients: SGD and AdamW, clipping by
// the global norm, and learning rate schedules.
//
// All functions depend only on their arguments. Schedules and bias corrections
// are functions of the step's number, so training resumed from a snapshot needs
// only the parameters, the moments and that number. Results have the same bits
// for any number of threads. The package never keeps state between calls and
// never decides when training stops.
package optimize
