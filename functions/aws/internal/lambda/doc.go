// Package lambda runs handlers as functions of AWS Lambda: it reads the
// environment, opens the stack, and translates what AWS calls a function with
// into the product's own events.
//
//	S3, EventBridge of S3 ───▶ Objects    an invocation ──▶ Invocations
//	SQS ─────────────────────▶ Messages   a schedule ─────▶ Timer
//	EventBridge of EC2 ──────▶ Notices
//
// A function returns shortly before its time is over (see withMargin), and
// reports each message of a queue separately. Lambda writes a returned error into
// the function's log. Keys of objects are decoded by their source: S3's
// notifications encode them, EventBridge does not. The package decides nothing
// about runs, and no cycle of functions feeds itself (I8).
//
// What a function sends continues the chain of calls of its event, which Lambda
// counts to stop loops. The messages of one batch have chains of their own: see
// ContinueChain.
package lambda
