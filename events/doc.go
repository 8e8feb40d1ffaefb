// Package events is what rollout's parts say to each other: an envelope with
// CloudEvents attributes, versioned payloads, and the table that decodes them.
//
// Events are data and hints: documents decide, so losing an event, or getting
// it three times, late or out of order, changes no result. The wire form is
// CloudEvents 1.0 structured-mode JSON; schema/ describes every payload and
// testdata/v1/ holds golden messages that every later version must read.
//
// A payload's name ends in its version. Within a version fields are only
// added, optional and omitted when empty; readers ignore fields they do not
// know. Anything else is a new version beside the old one.
//
// The package imports the standard library alone, sends nothing, and gives
// events no behaviour. Bytes from outside are hostile: their size and depth are
// bounded, and names that become parts of keys are checked.
package events

//go:generate go run ./internal/schemagen schema
