// Package api is how users ask after runs and steer them: as a Service, in
// process, and as JSON over HTTP.
//
// It reads the documents of runs and workers, and writes one kind alone:
// control/<run>, what a run is desired to do, by compare-and-swap. Submitting
// is announcing an object that already is in the bucket. It never changes a
// run's progress, never waits for a wish to come true, and keeps no state.
package api
