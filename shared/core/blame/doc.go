// Package blame decides whose fault a failed request is: the item's, one
// server's, or the run's settings. It is a pure state machine over the outcomes of
// requests. A worker has one Ledger and tells it of every request.
//
// Outcomes that name their cause (a prompt that is too long, a member that the row
// itself brought, a content policy) do not come here: they are the item's. All
// others are judged by comparison with what other requests met.
//
// # Servers
//
//	          failures of 3 different items in a row, or of a comparison
//	trusted ──────────────────────────────────────────────────────────▶ doubted ◀──┐
//	   ▲                                                                   │ wait   │ it fails:
//	   │               it is answered                                      ▼        │ wait × 2
//	   └─────────────────────────────────────────────── comparison, or a trial ─────┘
//
// A doubted server gets no requests of items. While another server is trusted,
// requests go there: the fault is the server's. Otherwise they wait: nothing is
// decided, and no item is charged. After a wait the server gets a comparison: a
// request that was answered before, of the same run if there was one. If that fails
// for a setting, the setting may be its own, so that one request of an item is tried
// next.
//
// # Items
//
//	            it fails             weigh: others are answered meanwhile
//	request ──────────────▶ open try ─────────────────────────────────────▶ tries + 1, product × share
//	   ▲                       │ nothing else was asked: a comparison first        │
//	   └───────────────────────┴──────────────◀── again, after a wait ────────────┤
//	                                                                              ▼
//	                              at least 3 tries and a product below 10⁻⁵: the item is charged
//
// The share is that of the run's other requests that met a failure meanwhile on the
// same server, or met a failure of the same nature before, whichever is more, and at
// least 0.01. So a server that refuses at random charges no item, and neither does an
// outage: a try without another answer meanwhile proves nothing. Until a request of
// the run has shown that the server understands the run, no item is charged.
//
// Where many items fail, as in a retry of those that failed, the shares are large and
// the items would need many tries each. So their tries count together as well: once
// repetitions have met an outcome of a setting again and again, and none was answered
// (a product below 10⁻⁶), it sticks to items, and two tries are enough. An answered
// repetition ends that.
//
// # Runs
//
//	             an answer, here or elsewhere         no answer for 60 s, settings alone
//	unproven ──────────────────────▶ proven ─────────────────────────────────────▶ refused
//	   │  few requests, one by one after a failure       ▲                            ▲   │ resumed
//	   ├──── all fail: a setting: look up ───────────────│────────────────────────────┘   ▼
//	   ├──── all fail: an outage: comparisons until one is answered              unproven again
//	   │                                                 │ an answer
//	   └──── all fail, one with the outcome of the last refusal: charging
//
// Until a request of a run has succeeded, few are spent. If all fail, the cause is a
// setting of the run, which only a user can mend, or an outage, which may pass: while
// comparisons, which all servers get in turn, fail too, for as long as it takes. A
// server that answers one gets a trial. A run that was resumed and meets the outcome
// again has been told to go on: items that fail on every server are charged. An answer
// ends that: if the run is refused later, it pauses again. A server that is silent
// hangs, which is an outage.
//
// No run is refused for what some servers meet while another one is away: it may be the
// one that answers. After five minutes without it, it counts no more.
//
// A refused run may not pause, because another worker has answers on its servers: then this
// one has been told to go on. The fault is that of its own servers, for as long as it takes.
//
// A worker that begins in the middle of a run may get the items that are left because
// the server refuses them. So the caller looks up, before an unproven run is refused,
// whether requests of the run were answered elsewhere. Then it is proven.
//
// A proven run whose server answers comparisons may have many items in a row that are
// at fault themselves, such as the last ones of a run, however long that takes to show. It
// is refused when 32 of them are charged and none was answered for 60 s. No more are
// charged before.
//
// The package reads no clock: times are arguments. It makes no request, and a Ledger
// must not be used concurrently.
package blame
