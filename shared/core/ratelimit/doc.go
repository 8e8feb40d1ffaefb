// Package ratelimit divides a limit on requests and tokens a minute among the
// workers of a pool.
//
// The limit is a number of permits. One document, limit/<pool>, says how many of
// them each worker may use in any minute: its share. Workers change the document by
// compare-and-swap; only workers write it.
//
//	free ──Take──▶ share of a worker ──Take, Leave──▶ used within the last minute ──minute over──▶ free
//	  ▲                │                                └─ the rest of what was given up is free at once
//	  └──── expired ───┘ (its worker crashed)
//
// A worker keeps to its share over any minute by its own Budget, which also spreads
// requests evenly. The shares, and the permits that were used within the last minute
// before they were given up, never exceed the limit. So all workers together keep
// to it over any minute, without a message for each request.
//
// A worker that crashed, or could not renew its share in time, gives nothing up. Its
// share is free when it expires; since both it and the next holder use it at an even
// pace, that changes little. Only if the share had become smaller just before, a minute
// may exceed the limit, by less than that share.
//
// A share is a slice of time as well: it expires unless it is renewed. Slices are the
// longer, the more workers hold one: they renew about half a time a second in all,
// and no two writes of the document are less than a second apart (see Doc.Wait).
//
// # What the server says
//
// The limit is that of the config, or a lower one that workers learn from the answers of
// their server: it states its limits, or refuses. A worker tells its Lease of each answer
// (Lease.Report), and keeps to what it says at once. The document has it for the others
// (Doc.Learnt). A refusal also stops the pool for as long as the server wants. See Learnt
// for how a limit is estimated of which only refusals show something.
//
// While no limit is known, everything begins at once, and the document is read once and
// not written.
//
// The package reads no clock and no document. The caller passes its clock's time; a
// Rules' Skew covers the difference of clocks.
package ratelimit
