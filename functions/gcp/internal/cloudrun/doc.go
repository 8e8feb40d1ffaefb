// Package cloudrun runs handlers as services of Cloud Run: it checks who calls, and
// translates what Google Cloud calls a service with into the product's own events.
//
//	bucket ──notification──▶ topic ─┐
//	events of the product ─▶ topic ─┼─push─▶ Pushes ─┬─▶ Objects    a new object
//	audit log ──sink───────▶ topic ─┘  (checked)     ├─▶ Tasks      one event
//	                                                 ├─▶ Collector  many events, one step
//	Cloud Scheduler ──request──▶ Timer               └─▶ Notices    about a machine
//
// A push is answered once its work is done, because a service has a CPU only during
// requests. An answer of 204 acknowledges the message. Every other answer lets
// Pub/Sub deliver it again: that is how a service hands back work that takes longer
// than a push may wait (handBack), and work that failed. A message that can't be
// handled at all is acknowledged once it is a dead letter.
//
// The package decides nothing about runs, and no cycle of functions feeds itself
// (I8).
package cloudrun
