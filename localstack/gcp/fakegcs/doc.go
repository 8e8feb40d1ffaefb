// Package fakegcs is an emulator of Cloud Storage's JSON interface in this process:
// fake-gcs-server, behind a front that corrects it where it differs from Google's
// documentation (see ../DIFFERENCES.md), and that loses, throttles and breaks answers on
// demand.
//
//	client ──▶ faults ──▶ front ──▶ fake-gcs-server
//	                        │  conditions of reads, deletes, copies and joins,
//	                        │  generations of their sources, chunks of uploads
//	                        └─▶ Notify, for each object that was made
//
// The front makes every object by an upload with a condition, which fake-gcs-server
// decides right. It handles one change at a time.
package fakegcs
