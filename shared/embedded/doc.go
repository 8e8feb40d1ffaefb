// Package embedded has the drivers of a laptop or a single machine: documents
// and queues in one SQLite file, a bucket in a folder, secrets from the
// environment, capacity from the kernel.
//
// Several processes may share one state folder and one bucket. Every driver
// passes its port's conformance suite. The package never reaches the network,
// never retries, and never loses a write that returned without an error.
package embedded
