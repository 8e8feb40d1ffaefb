// Package lambdafn makes handlers functions of AWS Lambda: it reads the
// environment, opens the stack, and turns the shapes in which AWS calls a
// function into the product's own events.
//
//	S3, EventBridge of S3 ───▶ Objects    an invocation ──▶ Tasks
//	SQS ─────────────────────▶ Messages   a schedule ─────▶ Timer
//	EventBridge of EC2 ──────▶ Notices
//
// A function hands back what it has not done before its time is up, and
// reports each message of a queue by itself. What it returns as an error Lambda
// writes into the function's log. Keys of objects are decoded once, by their
// source: S3's notifications encode them, EventBridge does not. The package
// decides nothing about runs, and no function sends itself events.
package lambda
