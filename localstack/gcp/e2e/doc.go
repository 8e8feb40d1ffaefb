// Package e2e answers prompts with the functions of Google Cloud as they are
// deployed: processes of one program, which Pub/Sub pushes to, over emulators of
// Cloud Storage, Firestore and Pub/Sub. A worker of the product pulls the work.
//
//	prompts ──▶ bucket ──notification──▶ topics ──pushes──▶ functions ──▶ completions
//	                                       ▲                    │
//	                              worker ──┴────── topics ◀─────┘
//
// Package scenarios has what users have in every cloud, and what disturbs their runs. Here
// are an installation as it sees one, and tests of what Google Cloud alone has.
package e2e
