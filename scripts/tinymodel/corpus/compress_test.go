package corpus

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/fault"
)

// compress is what compress(1) writes after its header, the plain way: a map of
// strings. It clears the table at the given places of the text.
func compress(text []byte, clears ...int) []byte {
	var w bitWriter
	codes, free := map[string]int{}, firstFree
	put := func(s []byte) {
		if len(s) == 1 {
			w.put(int(s[0]), free)
		} else if len(s) > 1 {
			w.put(codes[string(s)], free)
		}
	}
	start := 0
	for i := range text {
		s := text[start : i+1]
		if len(s) == 1 {
			continue
		}
		if _, known := codes[string(s)]; known {
			continue
		}
		put(text[start:i])
		if free < 1<<mostBits {
			codes[string(s)] = free
			free++
		}
		start = i
		for _, at := range clears {
			if at == i {
				w.put(clearCode, free)
				w.align()
				codes, free = map[string]int{}, firstFree
			}
		}
	}
	put(text[start:])
	w.align()
	return w.bytes
}

// bitWriter packs codes from the low bits up, in groups of eight of a width.
type bitWriter struct {
	bytes []byte
	bits  int // of the group
	group []int
}

func (w *bitWriter) put(code, free int) {
	bits := firstBits
	for bits < mostBits && free-1 > 1<<bits-1 { // what the reader has by now
		bits++
	}
	if bits != w.bits {
		w.align()
		w.bits = bits
	}
	w.group = append(w.group, code)
	if len(w.group) == 8 {
		w.align()
	}
}

// align writes the group, filled up with zeros.
func (w *bitWriter) align() {
	if len(w.group) == 0 {
		return
	}
	b := make([]byte, w.bits)
	for i, code := range w.group {
		for bit := range w.bits {
			at := i*w.bits + bit
			b[at/8] |= byte(code>>bit&1) << (at % 8)
		}
	}
	w.bytes = append(w.bytes, b...)
	w.group = w.group[:0]
}

func TestCompressedTextComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n the")), 1, 400).Draw(t, "unit")
		text := bytes.Repeat(unit, rapid.IntRange(1, 30).Draw(t, "times"))
		clears := rapid.SliceOfN(rapid.IntRange(1, len(text)), 0, 3).Draw(t, "clears")
		got, err := decompress(compress(text, clears...), len(text)+400)
		// The last group of codes may be filled up: with zero bytes, here.
		if err != nil || !bytes.HasPrefix(got, text) || strings.Trim(string(got[len(text):]), "\x00") != "" {
			t.Fatalf("%d bytes came back as %d, %v", len(text), len(got), err)
		}
	})
}

func TestCodesOfEveryWidthAreRead(t *testing.T) {
	t.Parallel()
	var text []byte
	for i := range uint32(300000) {
		text = append(text, byte(i*2654435761>>24)) // repeats little, so that the table fills up
	}
	got, err := decompress(compress(text), len(text)+400)
	if err != nil || !bytes.HasPrefix(got, text) {
		t.Fatalf("%d bytes came back as %d, %v", len(text), len(got), err)
	}
}

func TestHostileCodesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		b     []byte
		limit int
		want  string
	}{
		{"a first code without a string", []byte{0x01, 0x01}, 100, "code 257 at bit 0"},
		{"a code too far ahead", []byte{'a', 0x04, 0x06}, 100, "names no string"},
		{"more than the limit", compress(bytes.Repeat([]byte("a"), 10000)), 100, "longer than 100 bytes"},
	} {
		if _, err := decompress(c.b, c.limit); fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzKJV(f *testing.F) {
	f.Add(bible("Title\nGe1:1 In the beginning\n", "Ge1:2 And the earth\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := KJV(b); err != nil && fault.KindOf(err) != fault.Corrupt {
			t.Fatalf("the fault is %s: %v", fault.KindOf(err), err)
		}
	})
}
