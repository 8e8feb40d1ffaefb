// Package pipeline holds the rules of a two-stage pipeline: stage 0 prepares and decodes,
// stage 1 generates. Times and results are arguments; decisions are return values.
//
//	stage 0 of one chunk                              epoch
//
//	  pending ──Send──▶ in flight ──Receive──▶ ready    Cut: epoch+1; what is in flight
//	                      ≤ DIn                ≤ DOut        or ready goes back to pending
//	                        │                    │
//	                        │ other epoch        └─Decode─▶ decoded
//	                        └─────────────▶ dropped
//
// Stage0 says what to do next: an envelope is sent before a result is decoded whenever both
// are possible, so that stage 1 works during the decode. Order is the receiver's side: ids
// rise. Calls says how often the generator runs for a chunk; stage 0 computes it, the mesh
// plans, runs and returns it, and all must be equal. Watchdog decides when silence has
// lasted too long. Measure computes from a run's timings how much of the shorter stage was
// hidden.
//
// The package knows no tensors, connections or processes.
package pipeline
