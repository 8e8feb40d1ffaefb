// Package training fine-tunes the tiny engine's models: supervised fine-tuning,
// and reward models with the loss of Bradley and Terry.
//
// The result depends only on the settings, the rows and the base model. It has the
// same bytes when training runs again, with another number of threads or on
// another processor, and when it is stopped and resumed from a saved state.
//
// A Trainer takes one step at a time and returns a Report of it. Save and Restore
// write and read its state as a folder of files; Run takes all steps and calls the
// caller's Hooks between them. Package snapshots stores these folders. The
// building blocks come from gpuworker/tinylm.
//
// The package never opens a bucket, reads a clock or handles signals, and never
// decides how often a state is saved.
package training
