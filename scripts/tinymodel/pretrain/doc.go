// Package pretrain trains a new tiny model to continue text.
//
// The result depends only on the Recipe and the documents. It has the same bytes on
// every machine, with any number of threads, and with or without interruptions. The
// sequences of a step depend only on the seed and the step's number, so a
// checkpoint contains only the parameters, the optimizer's two moments and the
// number of steps taken. (gpuworker/training calls the equivalent of a checkpoint a
// state.)
//
// A Trainer takes steps; Save and Resume write and read checkpoints in a folder.
// The package never reads a clock.
package pretrain
