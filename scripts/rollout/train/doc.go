// Package train implements `rollout train`. It trains in this process, saves
// snapshots in a local installation, shows the progress, and writes the loss curve
// and the run's id to the output folder.
//
// Package gpuworker/training does the training; this package contains only the wiring
// for the command line. After a crash at any point, --resume continues from the last
// snapshot and ends with the same bytes.
package train
