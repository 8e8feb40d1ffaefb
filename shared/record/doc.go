// Package record defines the documents and objects that make up a run: their
// types, their JSON, and their keys.
//
// The first part of a document's key names who may write it; each type's comment
// says it in words. A document is JSON with a schema version, and it is always
// written as a whole. Encode and Decode convert it.
//
// The package does no I/O and decides nothing. The state machines are in
// shared/core.
package record
