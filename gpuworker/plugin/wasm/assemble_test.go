package wasm

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A module of tests, written in its binary form: functions without imports, a memory that may
// grow, and bytes in it.
type module struct {
	functions []function
	data      string // at address dataAt
	pages     byte   // of memory at first
}

type function struct {
	name string // of its export
	kind byte   // one of the kinds below
	body []byte // its code, without locals and the end
}

// Kinds of functions.
const (
	versionKind = iota // () i32
	allocKind          // (i32) i32
	callKind           // (i32, i32) i64
	freeKind           // (i32, i32)
)

// dataAt is where a module's data is.
const dataAt = 1024

// Instructions.
const (
	opUnreachable = 0x00
	opLoop        = 0x03
	opBr          = 0x0c
	opBrIf        = 0x0d
	opEnd         = 0x0b
	opCall        = 0x10
	opDrop        = 0x1a
	opGet         = 0x20 // of a local
	opStore8      = 0x3a
	opGrow        = 0x40
	opI32         = 0x41 // a constant
	opI64         = 0x42
	opNe          = 0x47
	noResult      = 0x40
)

// leb appends a signed number in its variable form.
func leb(dst []byte, x int64) []byte {
	for {
		b := byte(x & 0x7f)
		x >>= 7
		if x == 0 && b&0x40 == 0 || x == -1 && b&0x40 != 0 {
			return append(dst, b)
		}
		dst = append(dst, b|0x80)
	}
}

// length appends an unsigned number in its variable form.
func length(dst []byte, n int) []byte {
	for n >= 0x80 {
		dst = append(dst, byte(n)|0x80)
		n >>= 7
	}
	return append(dst, byte(n))
}

func i32(x int64) []byte { return leb([]byte{opI32}, x) }
func i64(x int64) []byte { return leb([]byte{opI64}, x) }

func section(dst []byte, id byte, content []byte) []byte {
	return append(length(append(dst, id), len(content)), content...)
}

func text(dst []byte, s string) []byte { return append(length(dst, len(s)), s...) }

// assemble writes the module's file, and returns its path.
func (m module) assemble(t *testing.T) string {
	t.Helper()
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = section(out, 1, []byte{4, 0x60, 0, 1, 0x7f, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 2, 0x7f, 0x7f, 1, 0x7e,
		0x60, 2, 0x7f, 0x7f, 0})
	kinds, exports, bodies := length(nil, len(m.functions)), length(nil, len(m.functions)+1), length(nil, len(m.functions))
	for i, f := range m.functions {
		kinds = append(kinds, f.kind)
		exports = length(append(text(exports, f.name), 0), i)
		body := append(append([]byte{0}, f.body...), opEnd)
		bodies = append(length(bodies, len(body)), body...)
	}
	exports = append(text(exports, exportMemory), 2, 0)
	out = section(out, 3, kinds)
	out = section(out, 5, []byte{1, 0, max(1, m.pages)})
	out = section(out, 7, exports)
	out = section(out, 10, bodies)
	if m.data != "" {
		data := slices.Concat([]byte{1, 0}, i32(dataAt), []byte{opEnd})
		out = section(out, 11, text(data, m.data))
	}
	path := filepath.Join(t.TempDir(), "plugin.wasm")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pluginOf returns a plugin whose call has a body, and replies with data.
func pluginOf(data string, call []byte) module {
	return module{data: data, functions: []function{
		{exportVersion, versionKind, i32(1)},
		{exportAlloc, allocKind, i32(32 << 10)},
		{exportCall, callKind, call},
		{exportFree, freeKind, nil},
	}}
}

// replyAt is the code that returns a reply of n bytes at an address.
func replyAt(at, n int) []byte { return i64(int64(at)<<32 | int64(n)) }

// replying returns a plugin that replies with a text.
func replying(reply string) module { return pluginOf(reply, replyAt(dataAt, len(reply))) }
