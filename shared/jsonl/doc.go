// Package jsonl reads files of JSON lines: it cuts them into lines, says which
// files are not JSON lines at all, and walks the values in a line without
// decoding them.
//
// Lines are split on 0x0A and on nothing else. Values keep their own bytes:
// numbers, escapes and key order stay as they were written. The package never
// buffers more than one line, never guesses an encoding, and does not know
// what a line means: that is package dialect's affair.
package jsonl
