// Package cuttable is how a run's input is cut into shards, and the binary
// objects in which plan keeps what it found in a range of an input object: the
// cut table, one row a shard; sorted lists of hashes, of the lines' own ids
// and of what they ask; and the items that repeat an earlier one.
//
// The same object and options give the same cuts anywhere (invariant I10), and
// shards never span ranges. Item and line numbers in these objects count from
// the start of their range: ranges are planned in parallel. The package is
// pure but for the readers and writers it is given, and never looks inside a
// line.
package shardtable

import (
	"encoding/binary"
	"math"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// The layout of a cut table, all numbers little-endian.
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

// RangeSize is the size of the ranges that an input object is planned in: a
// part of the format. The last range of an object is shorter.
const RangeSize = 64 << 20

// Flags of a row.
const (
	// FlagLong marks a shard with a line that is too long to be read.
	FlagLong uint32 = 1 << 0

	knownFlags = FlagLong
)

// Header says which range of which input object a cut table is of, and how it
// was cut.
type Header struct {
	Input    uint32 // index of the input object in the run
	Range    uint32 // index of the range in the object
	Start    uint64 // the range's first byte
	End      uint64 // the byte behind its last
	MaxItems uint32
	MaxBytes uint32
}

// Row is one shard: lines of one input object, side by side.
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
	Group     uint32 // 0 is none, as for the next three
	Chain     uint32
	Variant   uint32
	Role      uint32
}

// RowOffset is the offset of row i in the object.
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

// ParseHeader reads the first HeaderSize bytes of a cut table. Anything that
// Append does not write is Corrupt.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderSize {
		return h, corrupt("the header has %d of %d bytes", len(b), HeaderSize)
	}
	le := binary.LittleEndian
	switch {
	case string(b[:7]) != magic:
		return h, corrupt("the object does not start with %q", magic)
	case b[7] != version:
		return h, corrupt("version %d is not known, this program reads version %d", b[7], version)
	case le.Uint32(b[8:]) != RowSize:
		return h, corrupt("rows of %d bytes, not %d", le.Uint32(b[8:]), RowSize)
	}
	h = Header{Input: le.Uint32(b[16:]), Range: le.Uint32(b[20:]), Start: le.Uint64(b[24:]), End: le.Uint64(b[32:]),
		MaxItems: le.Uint32(b[40:]), MaxBytes: le.Uint32(b[44:])}
	switch {
	case string(h.Append(nil)) != string(b[:HeaderSize]):
		return h, corrupt("reserved bytes of the header are set")
	case h.Start > h.End || h.End > math.MaxInt64:
		return h, corrupt("the range is %d to %d", h.Start, h.End)
	}
	return h, nil
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

// Parse reads a page of whole rows that follow each other in a cut table:
// the bytes from RowOffset(i) to RowOffset(j). Rows that can't be, or that do
// not continue each other, are Corrupt.
func Parse(b []byte) ([]Row, error) {
	if len(b)%RowSize != 0 {
		return nil, corrupt("%d bytes are no whole number of rows of %d", len(b), RowSize)
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

// check refuses rows that no cut gives. Sums of a checked row's numbers fit
// into 63 bits.
func (r Row) check() error {
	const most = math.MaxInt64 / 2
	switch {
	case r.Flags&^knownFlags != 0:
		return corrupt("unknown flags %#x", r.Flags)
	case r.Offset > most || r.Length > most || r.FirstItem > most || r.FirstLine > most:
		return corrupt("a number is too large")
	case r.Items == 0 || r.Items > r.Lines || uint64(r.Lines) > r.Length || r.FirstItem > r.FirstLine:
		return corrupt("%d items in %d lines of %d bytes, from item %d and line %d on", r.Items, r.Lines, r.Length, r.FirstItem, r.FirstLine)
	}
	return nil
}

// follows reports whether r can be the row behind p.
func (r Row) follows(p Row) bool {
	return r.Input == p.Input && r.Offset == p.Offset+p.Length &&
		r.FirstItem == p.FirstItem+uint64(p.Items) && r.FirstLine == p.FirstLine+uint64(p.Lines)
}

func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, "cut table: "+format, args...)
}
