package corpus

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/fault"
)

// compress returns the output of compress(1) without its header. It is a simple
// implementation with a map of strings. It clears the table at the given offsets of
// the text.
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

// bitWriter packs codes from the low bits up, in groups of eight codes of one width.
type bitWriter struct {
	bytes []byte
	bits  int // width of the codes of the group
	group []int
}

func (w *bitWriter) put(code, free int) {
	bits := firstBits
	for bits < mostBits && free-1 > 1<<bits-1 { // the reader's table has one code less
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

// align writes the group, padded with zeros.
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

func TestDecompressReadsCompressedText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n the")), 1, 400).Draw(t, "unit")
		text := bytes.Repeat(unit, rapid.IntRange(1, 30).Draw(t, "times"))
		clears := rapid.SliceOfN(rapid.IntRange(1, len(text)), 0, 3).Draw(t, "clears")
		got, err := decompress(compress(text, clears...), len(text)+400)
		// The padding of the last group of codes decodes to zero bytes.
		if err != nil || !bytes.HasPrefix(got, text) || strings.Trim(string(got[len(text):]), "\x00") != "" {
			t.Fatalf("%d compressed bytes decode to %d, %v", len(text), len(got), err)
		}
	})
}

func TestDecompressReadsCodesOfEveryWidth(t *testing.T) {
	t.Parallel()
	var text []byte
	for i := range uint32(300000) {
		text = append(text, byte(i*2654435761>>24)) // few repetitions, so that the table fills up
	}
	got, err := decompress(compress(text), len(text)+400)
	if err != nil || !bytes.HasPrefix(got, text) {
		t.Fatalf("%d compressed bytes decode to %d, %v", len(text), len(got), err)
	}
}

func TestDecompressRefusesDamagedCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		b     []byte
		limit int
		want  string
	}{
		{"undefined first code", []byte{0x01, 0x01}, 100, "code 257 at bit 0"},
		{"undefined later code", []byte{'a', 0x04, 0x06}, 100, "is undefined"},
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
			t.Fatalf("the fault is %s, want Corrupt: %v", fault.KindOf(err), err)
		}
	})
}
