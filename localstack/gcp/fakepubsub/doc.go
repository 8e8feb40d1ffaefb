// Package fakepubsub is a Pub/Sub for tests: a gRPC server of topics and
// subscriptions in memory, and the pushes of subscriptions that have an endpoint.
//
//	Publish ──▶ topic ──▶ a copy for each subscription ──▶ Pull, or a push over HTTP
//
//	waiting ──delivered, attempt+1──▶ leased ──acknowledged──▶ gone
//	   ▲                                │
//	   └──deadline over, nack ──────────┴── after the last attempt ──▶ dead-letter topic
//
// It keeps Pub/Sub's rules and limits: sizes, deadlines, attempts counted only with
// a dead-letter policy, backoff. An expired acknowledgement succeeds, and may or may
// not have an effect. A delivery has an acknowledgement id of its own; an id that
// the server never gave is InvalidArgument, for the whole request.
//
// Messages are delivered in no order, twice or late if a test wants that (Faults).
// The clock is the machine's, or a test's (Advance). What rollout does not use, such
// as ordered subscriptions, filters and exactly-once delivery, is Unimplemented.
package fakepubsub
