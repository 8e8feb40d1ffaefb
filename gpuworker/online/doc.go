// Package online answers online requests in a worker's process: those of clients that wait
// for the answer. They come over a Unix socket from the process that listens for clients,
// and go to the worker's engine as they are.
//
//	socket ─▶ body ─▶ slot of the online class ─▶ Target: the engine's servers ─▶ the answer, piece by piece
//	             │           │                             │
//	             └───────────┴── not begun: elsewhere ◀────┘ died of it: failed
//
// An online request belongs to no run: it is counted in no totals, and what it meets charges
// no item. The package decides neither which worker gets a request nor whether it is
// repeated elsewhere; see functions/online.
package online
