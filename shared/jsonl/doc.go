// Package jsonl reads files of JSON lines: Scanner splits them into lines, Sniff
// and Recognize tell files of other formats, and Object and Array walk the values of a line
// without decoding them.
//
// Lines are split at 0x0A only. Values keep their bytes: numbers, escapes and the order
// of keys stay as they were written. The package buffers at most one line, does not
// guess encodings, and does not know the meaning of a line, which is in package
// dialect.
package jsonl
