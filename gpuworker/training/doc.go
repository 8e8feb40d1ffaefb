// Package training trains the tiny engine's models: supervised fine-tuning, and
// reward models after Bradley and Terry.
//
// A training is a pure function of its settings, its rows and the model that it
// begins with: run again, run with other threads or on another processor, or
// stopped and gone on with from its state, it ends with the same bytes.
//
// The package is a library for whoever owns a process: it takes one step at a
// time, says how it went, and writes or reads its state as a folder of files.
// It never opens a bucket, reads a clock, listens to signals or decides how
// often a state is worth keeping; Run calls back for all that.
package training
