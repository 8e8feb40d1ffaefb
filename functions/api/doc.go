// Package api shows, explains, submits and steers runs: in process as a Service,
// and as JSON over HTTP by its Handler.
//
// It reads the documents of runs and workers through package status, and
// explains them with package diagnosis. It writes one document, control/<run>,
// which says what a run is desired to do, by compare-and-swap. Submitting sends
// the event of an object that is already in the bucket.
//
// The package never changes a run's progress, never waits until a desired state
// is reached, and keeps no state.
package api
