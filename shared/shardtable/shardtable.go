// Package shardtable cuts a run's input into shards, and defines the binary objects
// in which plan stores what it found in a range of an input object:
//
//   - the shard table, with one row for each shard,
//   - sorted lists of hashes: of the explicit ids of lines, and of their requests,
//   - the repeats: the items that have the id or the request of an earlier item.
//
// The same object and options give the same shards everywhere (I10, see
// shared/README.md), and a shard never spans two ranges. Ranges are planned in
// parallel, so item and line numbers in these objects count from the start of
// their range. The package uses only the readers and writers that it is given, and
// does not interpret the content of a line.
package shardtable

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// The layout of a shard table. All numbers are little-endian.
//
//	header  "ROLLCUT" · version u8 · row size u32 · reserved u32 · input u32 · range u32 ·
//	        start u64 · end u64 · max items u32 · max bytes u32 · reserved 16 bytes
//	row     input u32 · flags u32 · offset u64 · length u64 · first item u64 · first line u64 ·
//	        items u32 · lines u32 · digest 32 bytes · group u32 · chain u32 · variant u32 · role u32
const (
	HeaderSize = 64
	RowSize    = 96

	magic   = "ROLLCUT"
	version = 1
)

// RangeSize is the size of the ranges of an input object in bytes, a part of the
// format. The last range of an object may be shorter.
const RangeSize = 64 << 20

// Flags of a row.
const (
	// FlagLong marks a shard with a line over the length limit.
	FlagLong uint32 = 1 << 0

	knownFlags = FlagLong
)

// Header names the input object and the range of a shard table, and the options of
// the cut.
type Header struct {
	Input    uint32 // index of the input object in the run
	Range    uint32 // index of the range in the object
	Start    uint64 // the range's first byte
	End      uint64 // the byte after its last
	MaxItems uint32
	MaxBytes uint32
}

// Row is one shard: consecutive lines of one input object.
type Row struct {
	Input     uint32
	Flags     uint32
	Offset    uint64 // of the first line's first byte, in the object
	Length    uint64 // bytes, line endings and blank lines included
	FirstItem uint64 // in the range, from 0
	FirstLine uint64 // in the range, from 0, blank lines included
	Items     uint32 // at least 1
	Lines     uint32 // blank ones included
	Digest    identity.ContentID
	Group     uint32 // this and the next three are 0 if unused
	Chain     uint32
	Variant   uint32
	Role      uint32
}

// RowOffset returns the offset of row i in the object.
func RowOffset(i int64) int64 { return HeaderSize + i*RowSize }

// Append appends the header's 64 bytes.
func (h Header) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = append(append(dst, magic...), version)
	dst = le.AppendUint32(dst, RowSize)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, h.Input)
	dst = le.AppendUint32(dst, h.Range)
	dst = le.AppendUint64(dst, h.Start)
	dst = le.AppendUint64(dst, h.End)
	dst = le.AppendUint32(dst, h.MaxItems)
	dst = le.AppendUint32(dst, h.MaxBytes)
	return append(dst, make([]byte, 16)...)
}

// Append appends the row's 96 bytes.
func (r Row) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, r.Input)
	dst = le.AppendUint32(dst, r.Flags)
	dst = le.AppendUint64(dst, r.Offset)
	dst = le.AppendUint64(dst, r.Length)
	dst = le.AppendUint64(dst, r.FirstItem)
	dst = le.AppendUint64(dst, r.FirstLine)
	dst = le.AppendUint32(dst, r.Items)
	dst = le.AppendUint32(dst, r.Lines)
	dst = append(dst, r.Digest[:]...)
	dst = le.AppendUint32(dst, r.Group)
	dst = le.AppendUint32(dst, r.Chain)
	dst = le.AppendUint32(dst, r.Variant)
	return le.AppendUint32(dst, r.Role)
}

// Parse reads consecutive whole rows of a shard table: the bytes from RowOffset(i) to
// RowOffset(j). Invalid rows, and rows that do not continue the row before, are
// Corrupt.
func Parse(b []byte) ([]Row, error) {
	if len(b)%RowSize != 0 {
		return nil, corrupt("%d bytes are not a whole number of rows of %d", len(b), RowSize)
	}
	rows := make([]Row, len(b)/RowSize)
	for i := range rows {
		rows[i] = parseRow(b[i*RowSize:])
		if err := rows[i].check(); err != nil {
			return nil, fault.Wrap(err, "row %d of the page", i)
		}
		if i > 0 && !rows[i].follows(rows[i-1]) {
			return nil, corrupt("row %d of the page does not continue the row before it", i)
		}
	}
	return rows, nil
}

func parseRow(b []byte) Row {
	le := binary.LittleEndian
	return Row{
		Input: le.Uint32(b), Flags: le.Uint32(b[4:]),
		Offset: le.Uint64(b[8:]), Length: le.Uint64(b[16:]),
		FirstItem: le.Uint64(b[24:]), FirstLine: le.Uint64(b[32:]),
		Items: le.Uint32(b[40:]), Lines: le.Uint32(b[44:]),
		Digest: identity.ContentID(b[48:80]),
		Group:  le.Uint32(b[80:]), Chain: le.Uint32(b[84:]), Variant: le.Uint32(b[88:]), Role: le.Uint32(b[92:]),
	}
}

// check rejects rows that a Cutter cannot produce. Sums of a checked row's numbers
// fit into 63 bits.
func (r Row) check() error {
	const limit = math.MaxInt64 / 2
	switch {
	case r.Flags&^knownFlags != 0:
		return corrupt("unknown flags %#x", r.Flags)
	case r.Offset > limit || r.Length > limit || r.FirstItem > limit || r.FirstLine > limit:
		return corrupt("a number is too large")
	case r.Items == 0 || r.Items > r.Lines || uint64(r.Lines) > r.Length || r.FirstItem > r.FirstLine:
		return corrupt("%d items in %d lines of %d bytes, from item %d and line %d on",
			r.Items, r.Lines, r.Length, r.FirstItem, r.FirstLine)
	}
	return nil
}

// follows reports whether r can be the row after p.
func (r Row) follows(p Row) bool {
	return r.Input == p.Input && r.Offset == p.Offset+p.Length &&
		r.FirstItem == p.FirstItem+uint64(p.Items) && r.FirstLine == p.FirstLine+uint64(p.Lines)
}

func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, "shard table: "+format, args...)
}

// Writer streams a shard table. It is not safe for concurrent use.
type Writer struct {
	w    *bufio.Writer
	last Row
	rows int64
	buf  []byte
}

// NewWriter starts a shard table with its header. Append and Flush return the errors
// of w.
func NewWriter(w io.Writer, h Header) *Writer {
	b := &Writer{w: bufio.NewWriterSize(w, 32<<10)}
	b.buf = h.Append(nil)
	b.w.Write(b.buf) // Flush returns the error
	return b
}

// Append writes the next row. It must be valid and continue the row before.
func (w *Writer) Append(r Row) error {
	if err := r.check(); err != nil {
		return err
	}
	if w.rows > 0 && !r.follows(w.last) {
		return corrupt("row %d does not continue the row before it", w.rows)
	}
	w.buf = r.Append(w.buf[:0])
	if _, err := w.w.Write(w.buf); err != nil {
		return fault.Wrap(err, "write row %d of a shard table", w.rows)
	}
	w.last = r
	w.rows++
	return nil
}

// Rows returns the number of rows written.
func (w *Writer) Rows() int64 { return w.rows }

// Flush writes everything buffered to the underlying writer.
func (w *Writer) Flush() error { return fault.Wrap(w.w.Flush(), "write a shard table") }
