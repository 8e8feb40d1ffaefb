package shardtable

import (
	"bufio"
	"encoding/binary"
	"io"
	"sort"

	"rollout/shared/fault"
)

// The layout of a range's repeats, all numbers big-endian. Entries are sorted
// by item; the index has the item of every 1,024th entry, so that the repeats
// of one shard are two small reads.
//
//	header  "ROLLRPT" · version u8 · entry size u32 · reserved u32
//	entry   item u32 · first's range u32 · first's item u32 · first's line u32
//	index   item u32 …
//
// How many entries there are is written in the range's index entry.
const (
	RepeatHeaderSize = 16
	RepeatSize       = 16
	RepeatPage       = 1024 // entries

	repeatMagic   = "ROLLRPT"
	repeatVersion = 1
)

// Repeat is an item, by its number in its range, that repeats an earlier one
// of the run: it has its id, or asks the same.
type Repeat struct {
	Item  uint32
	First Place
}

// RepeatOffset is the offset of entry i in the object; that of entry count is
// the index's.
func RepeatOffset(i int) int64 { return RepeatHeaderSize + int64(i)*RepeatSize }

// RepeatPages is how many pages that many repeats have, and items the index.
func RepeatPages(count int) int { return (count + RepeatPage - 1) / RepeatPage }

// RepeatWriter streams repeats that come in item order.
type RepeatWriter struct {
	w     *bufio.Writer
	index []byte
	count int
	last  uint32
	buf   [RepeatSize]byte
}

// NewRepeatWriter starts an object of repeats. Errors of w are returned by
// Append and Flush.
func NewRepeatWriter(w io.Writer) *RepeatWriter {
	b := &RepeatWriter{w: bufio.NewWriterSize(w, 32<<10)}
	head := append([]byte(repeatMagic), repeatVersion)
	head = binary.BigEndian.AppendUint32(head, RepeatSize)
	b.w.Write(binary.BigEndian.AppendUint32(head, 0)) // the error is kept and returned by Flush
	return b
}

// Append writes the next repeat.
func (w *RepeatWriter) Append(r Repeat) error {
	if w.count > 0 && r.Item <= w.last {
		return fault.New(fault.Internal, "repeat %d of item %d comes after item %d", w.count, r.Item, w.last)
	}
	be := binary.BigEndian
	if w.count%RepeatPage == 0 {
		w.index = be.AppendUint32(w.index, r.Item)
	}
	w.count, w.last = w.count+1, r.Item
	be.PutUint32(w.buf[:], r.Item)
	be.PutUint32(w.buf[4:], r.First.Range)
	be.PutUint32(w.buf[8:], r.First.Item)
	be.PutUint32(w.buf[12:], r.First.Line)
	_, err := w.w.Write(w.buf[:])
	return fault.Wrap(err, "write repeats")
}

// Flush writes the index and hands everything to the underlying writer.
func (w *RepeatWriter) Flush() error {
	w.w.Write(w.index)
	return fault.Wrap(w.w.Flush(), "write repeats")
}

// RepeatIndex is the first item of each page.
type RepeatIndex []uint32

// ParseRepeatIndex reads the index of that many repeats.
func ParseRepeatIndex(b []byte, count int) (RepeatIndex, error) {
	if len(b) != 4*RepeatPages(count) {
		return nil, fault.New(fault.Corrupt, "the index of %d repeats has %d bytes", count, len(b))
	}
	x := make(RepeatIndex, len(b)/4)
	for i := range x {
		x[i] = binary.BigEndian.Uint32(b[4*i:])
		if i > 0 && x[i] <= x[i-1] {
			return nil, fault.New(fault.Corrupt, "the index of repeats is not sorted")
		}
	}
	return x, nil
}

// Pages returns the pages [from, to) that the items [lo, hi) may be in.
func (x RepeatIndex) Pages(lo, hi uint32) (from, to int) {
	from = sort.Search(len(x), func(i int) bool { return x[i] > lo })
	to = sort.Search(len(x), func(i int) bool { return x[i] >= hi })
	return max(0, from-1), to
}

// ParseRepeats reads entries that follow each other, and keeps those of the
// items [lo, hi).
func ParseRepeats(b []byte, lo, hi uint32) ([]Repeat, error) {
	if len(b)%RepeatSize != 0 {
		return nil, fault.New(fault.Corrupt, "%d bytes are no whole number of repeats", len(b))
	}
	be := binary.BigEndian
	var out []Repeat
	for i := 0; i < len(b); i += RepeatSize {
		e := b[i:]
		r := Repeat{be.Uint32(e), Place{be.Uint32(e[4:]), be.Uint32(e[8:]), be.Uint32(e[12:])}}
		if i > 0 && r.Item <= be.Uint32(b[i-RepeatSize:]) {
			return nil, fault.New(fault.Corrupt, "repeats are not sorted")
		}
		if r.Item >= lo && r.Item < hi {
			out = append(out, r)
		}
	}
	return out, nil
}
