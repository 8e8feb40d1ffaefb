// Package liveness decides which requests are streamed, and whether a server still
// works on those that are not. It is a pure state machine: a balancer has one Server
// for each inference server and tells it what the server reports and how requests end.
//
// A stream shows by its tokens that the server works on the request. A whole answer is
// cheaper for both sides, but silent until its end. So that a hung server is found all
// the same, something else must vouch for a silent request: it counts as making progress
// as long as the Server vouches for it, and not longer.
//
// # Servers
//
//	                   a reading with counters
//	     ┌─────────┐ ───────────────────────────────▶ ┌─────────┐
//	     │ unknown │                                  │ counted │
//	     └─────────┘ ◀─────────────────────────────── └─────────┘
//	          │        3 readings without counters,
//	          │ wrong  or counters that can't be right
//	          ▼
//	counters are ignored
//
// A counted server vouches for its whole requests at each reading that shows work: more
// generated tokens, or more steps of the model. Counters that stand still for as long as
// a stream may be silent end the requests, as a silent stream would.
//
// # Models of a server
//
//	            8 answers with token counts
//	streamed ───────────────────────────────▶ paced
//	    ▲                                       │
//	    └── an answer without token counts, ────┘
//	        2 cuts at one age, 2 false alarms
//
// A server without counters vouches for a request of a paced model until the time is
// over that the longest answer, of max_tokens, takes at the pace of earlier ones. The
// same three events make requests of a counted server streams, for good.
//
// # Whose work the counters show
//
// Counters tell of all requests of a server. These are the ways in which they can
// mislead, and what bounds each:
//
//   - Others' tokens grow while ours are lost in the server. A running request gets one
//     token a step, like its neighbours: when a request could have had 8 times its
//     max_tokens by the average of all requests, the counters no longer vouch for it.
//   - The counters are of something else, such as another model or process. When answers
//     with tokens come and the counters stand still for 3 readings, they are ignored.
//   - They jump, as behind one address of several replicas. A restart does that once; a
//     jump in every fourth reading and more makes them be ignored.
//   - They are missing for 3 readings: the server is no longer counted.
//   - They are not numbers, or negative: such a counter is missing.
//
// A request that is ended although its server works is a false alarm. It is asked again
// as a stream, which shows the truth, and costs its item nothing.
//
// The package reads no clock: times are arguments. A Server must not be used concurrently.
package liveness
