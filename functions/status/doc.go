// Package status reads what an installation's documents say and turns it into
// the model that users see: runs, workers and queues.
//
// A Reader reads manifests, progress, workers, shards and queue depths, and
// never writes. Of is pure: it computes a run's Status from its Progress and a
// time. The JSON forms are a contract: fields are added, never renamed.
//
// Status.Blockers stays empty here. Package diagnosis judges what keeps a run
// from going on, and fills it in.
package status
