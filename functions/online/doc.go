// Package online passes requests of clients that wait for the answer to the workers of an
// installation on one machine: chats, completions, embeddings and responses, as OpenAI's API
// has them.
//
//	client ─▶ model ─▶ pool ─▶ a live worker's socket ─▶ its answer, piece by piece
//	            │                 │    ▲
//	            └─ unknown: 404   │    └─ not begun there: the next worker, until max_wait
//	                              └─ broken after the first byte: an event with the error ends the stream
//
// The model of a request is that of a pool, or the name of a pool. Workers say in their
// heartbeats where they take requests, and how many. A worker is passed over while its
// engine is asked about an item on probation, so that a crash is the fault of nothing else.
// The client's own headers are not passed on; its key is that of rollout's API.
//
// The package keeps no document, belongs to no run, and repeats no request of which a server
// may have died, or whose answer has begun.
package online
