// Package events defines the messages between rollout's functions, workers and
// timers: an envelope with CloudEvents attributes, versioned payloads, and the
// table that decodes them.
//
// Encode turns a payload into bytes, and Decode turns bytes into an Envelope and a
// payload. The wire form is CloudEvents 1.0 structured-mode JSON. The folder schema
// describes every payload, and testdata/v1 holds golden messages that every later
// version must read.
//
// Events are hints, and documents decide. A lost, repeated, late or reordered
// event changes no result.
//
// The name of a payload type ends in its version. Within a version fields are only
// added; they are optional and omitted when empty. Readers ignore unknown fields.
// Every other change is a new version beside the old one.
//
// The package imports only the standard library, sends nothing, and gives events
// no behaviour. Bytes from outside are hostile: the package bounds their size and
// depth, and checks names that become parts of keys.
package events

//go:generate go run ./internal/schemagen schema
