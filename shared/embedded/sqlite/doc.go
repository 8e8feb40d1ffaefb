// Package sqlite drives the document and queue ports with one SQLite file, the
// state of an installation on one machine.
//
//	callers ──changes──▶ writer ──one transaction for all that wait──▶ state.db (WAL, synchronous=FULL)
//	readers ───────────────────── a connection each ────────────────▶ state.db
//
// Several processes may share one state folder: a fair file lock orders their
// writers, and each process learns of the others' messages by polling the
// file's data version. A write that returned without an error survives a crash
// of the process and of the machine. The package also backs up, checks and
// restores the file. It never reaches the network and never retries.
package sqlite
