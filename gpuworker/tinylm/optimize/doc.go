// Package optimize turns gradients into steps: SGD and AdamW, clipping by the
// global norm, and schedules of the learning rate.
//
// Everything is a function of its arguments: a step's number says where a
// schedule and a bias correction stand, so that training that goes on from a
// snapshot needs no more than parameters, moments and that number. Results have
// the same bits for any number of threads. The package will never keep state of
// its own or decide when to stop.
package optimize
