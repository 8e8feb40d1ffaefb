package shardtable

import (
	"bufio"
	"encoding/binary"
	"io"
	"sort"

	"rollout/shared/fault"
)

// The layout of a range's repeats. All numbers are big-endian. Entries are sorted by
// item. The index has the item of every 1,024th entry, so that finding the repeats
// of one shard takes two small reads.
//
//	header  "ROLLRPT" · version u8 · entry size u32 · reserved u32
//	entry   item u32 · first's range u32 · first's item u32 · first's line u32
//	index   item u32 …
//
// The range's index entry has the number of entries.
const (
	RepeatHeaderSize = 16
	RepeatSize       = 16
	RepeatPage       = 1024 // entries

	repeatMagic   = "ROLLRPT"
	repeatVersion = 1
)

// Repeat is an item that has the id or the request of an earlier item of the run.
type Repeat struct {
	Item  uint32 // its number in its range
	First Place  // of the first item with that id or request
}

// RepeatOffset returns the offset of entry i in the object. With i the number of
// entries, it is the offset of the index.
func RepeatOffset(i int) int64 { return RepeatHeaderSize + int64(i)*RepeatSize }

// RepeatPages returns how many pages count repeats have, which is also the number of
// items in the index.
func RepeatPages(count int) int { return (count + RepeatPage - 1) / RepeatPage }

// RepeatWriter streams repeats in item order.
type RepeatWriter struct {
	w     *bufio.Writer
	index []byte
	count int
	last  uint32
	buf   [RepeatSize]byte
}

// NewRepeatWriter starts an object of repeats. Append and Flush return the errors of w.
func NewRepeatWriter(w io.Writer) *RepeatWriter {
	b := &RepeatWriter{w: bufio.NewWriterSize(w, 32<<10)}
	head := append([]byte(repeatMagic), repeatVersion)
	head = binary.BigEndian.AppendUint32(head, RepeatSize)
	b.w.Write(binary.BigEndian.AppendUint32(head, 0)) // Flush returns the error
	return b
}

// Append writes the next repeat. Its item must be greater than the one before.
func (w *RepeatWriter) Append(r Repeat) error {
	if w.count > 0 && r.Item <= w.last {
		return fault.New(fault.Internal, "repeat %d is of item %d, after one of item %d", w.count, r.Item, w.last)
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

// Flush writes the index, and everything buffered to the underlying writer.
func (w *RepeatWriter) Flush() error {
	w.w.Write(w.index)
	return fault.Wrap(w.w.Flush(), "write repeats")
}

// RepeatIndex holds the first item of each page.
type RepeatIndex []uint32

// ParseRepeatIndex reads the index of count repeats. An invalid one is Corrupt.
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

// Pages returns the pages [from, to) that may hold repeats of the items [lo, hi).
func (x RepeatIndex) Pages(lo, hi uint32) (from, to int) {
	from = sort.Search(len(x), func(i int) bool { return x[i] > lo })
	to = sort.Search(len(x), func(i int) bool { return x[i] >= hi })
	return max(0, from-1), to
}

// ParseRepeats reads consecutive entries, and returns those of the items [lo, hi).
// Entries that are not sorted are Corrupt.
func ParseRepeats(b []byte, lo, hi uint32) ([]Repeat, error) {
	if len(b)%RepeatSize != 0 {
		return nil, fault.New(fault.Corrupt, "%d bytes are not a whole number of repeats", len(b))
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
