// Package sqlite implements the document and queue ports on one SQLite file, the
// state of an installation on one machine.
//
//	callers ──changes──▶ writer ──one transaction for all pending changes──▶ state.db (WAL, synchronous=FULL)
//	callers ──reads────▶ pool of read-only connections ───────────────────▶ state.db
//
// Several processes may share one state folder: a fair file lock orders their
// writers, and each process learns of the others' writes by polling the counter
// of writes in the file. A write that returned without an error survives a crash
// of the process and of the machine. The package also backs up, checks and
// restores the file. It never uses the network and never retries.
package sqlite
