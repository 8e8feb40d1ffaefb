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
//	   └──────────────────────────────────────────────────────────── comparison ────┘
//
// A doubted server gets no requests of items. While another server is trusted,
// requests go there: the fault is the server's. Otherwise they wait: nothing is
// decided, and no item is charged. After a wait the server gets a comparison: a
// request that was answered before.
//
// # Items
//
//	            it fails             weigh: others are answered meanwhile
//	request ──────────────▶ open try ─────────────────────────────────────▶ tries + 1, product × share
//	   ▲                       │ nobody else was asked: a comparison first        │
//	   └───────────────────────┴──────────────◀── again, after a wait ────────────┤
//	                                                                              ▼
//	                              at least 3 tries and a product below 10⁻⁵: the item is charged
//
// The share is that of other requests that met a failure meanwhile on the same
// server, or met the same outcome before, whichever is more, and at least 0.01. So a
// server that refuses at random charges nobody, and neither does an outage: a try
// without another answer meanwhile proves nothing.
//
// Where many items fail, as in a retry of those that failed, the shares are large and
// the items would need many tries each. So their tries count together as well: once
// repetitions have met an outcome of a setting again and again, and none was answered
// (a product below 10⁻⁶), it sticks to items, and two tries are enough. An answered
// repetition ends that.
//
// # Runs
//
//	             an answer                            no answer for 60 s, a setting
//	unproven ──────────────────────▶ proven ─────────────────────────────────────▶ refused
//	   │  few requests, one by one after a failure                                    ▲   │ resumed
//	   ├──── all fail: a setting ─────────────────────────────────────────────────────┘   ▼
//	   ├──── all fail: an outage: comparisons until one is answered              unproven again;
//	   └──── all fail with the outcome of the last refusal: charging         the same: charging
//
// Until a request of a run has succeeded, few are spent. If all fail, the cause is a
// setting of the run, which only a user can mend, or an outage, which may pass. A
// run that was resumed and meets the outcome again has been told to go on: its items
// are charged.
//
// The package reads no clock: times are arguments. It makes no request, and a Ledger
// must not be used concurrently.
package blame
