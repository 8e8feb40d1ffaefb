// Package fakefirestore is a Firestore for tests: a gRPC server with the three
// calls that rollout uses, over documents in memory.
//
//	Commit              one write, with its precondition, not in a transaction
//	BatchGetDocuments   documents by name, strongly consistent
//	RunQuery            a range of names of one collection, in their order
//
// It keeps Firestore's rules: update times that only grow, also over a deletion;
// the error of each failed precondition; the limits of names and sizes. A write that
// changes nothing keeps its document's update time. Everything else that Firestore
// can do is Unimplemented, so that a test notices when a driver begins to use it.
//
// The server can abort commits and lose replies (Faults), and counts the writes of
// each document (Busiest), because Firestore sustains one a second.
package fakefirestore
