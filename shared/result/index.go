package result

import (
	"encoding/binary"

	"rollout/shared/fault"
)

// The result of a run that asks identical requests once ends in an index, so
// that the row of an item is found without reading the others, and has the
// lines of copies, whose rows are made at the run's end.
//
//	output rows · error rows · lines of copies, each in item order
//	index   for each item: length uvarint · kind u8 ·
//	        class, of an error: length u8, text · original's item, own line uvarint, of a copy
//	footer  index's length u32 LE · "RIDX"
const (
	footerSize  = 8
	footerMagic = "RIDX"
)

// RowKind is what a result has of an item.
type RowKind uint8

// The kinds.
const (
	RowOutput RowKind = iota
	RowError
	RowCopy
)

// Part is where a result has what it has of one item.
type Part struct {
	Kind           RowKind
	Class          fault.Class // of an Error
	Copied                     // of a Copy
	Offset, Length int64
}

func (r Row) kind() RowKind {
	switch {
	case r.Copy != nil:
		return RowCopy
	case r.Class != "":
		return RowError
	}
	return RowOutput
}

// AppendIndexed writes a result of the rows of all items, with its index.
// outputLen is the length of the output rows.
func AppendIndexed(dst []byte, rows []Row) (b []byte, outputLen int64) {
	start := len(dst)
	for k := RowOutput; k <= RowCopy; k++ {
		for _, r := range rows {
			if r.kind() == k {
				dst = append(dst, r.Bytes...)
			}
		}
		if k == RowOutput {
			outputLen = int64(len(dst) - start)
		}
	}
	start = len(dst)
	for _, r := range rows {
		dst = append(binary.AppendUvarint(dst, uint64(len(r.Bytes))), byte(r.kind()))
		switch r.kind() {
		case RowError:
			dst = append(append(dst, byte(len(r.Class))), r.Class...)
		case RowCopy:
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, r.Copy.Original), r.Copy.Line)
		}
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dst)-start))
	return append(dst, footerMagic...), outputLen
}

// ParseIndex reads the index at the end of a result of so many bytes and
// items. tail is the result's end; if it is too short, need is how long it
// must be.
func ParseIndex(tail []byte, length int64, items int) (parts []Part, need int, err error) {
	n := len(tail) - footerSize
	if n < 0 || string(tail[n+4:]) != footerMagic {
		return nil, 0, fault.New(fault.Corrupt, "the result has no index")
	}
	size := int64(binary.LittleEndian.Uint32(tail[n:]))
	if size+footerSize > length {
		return nil, 0, fault.New(fault.Corrupt, "the index of %d bytes is longer than its result of %d", size, length)
	}
	if size > int64(n) {
		return nil, int(size) + footerSize, nil
	}
	d := decoder{tail[int64(n)-size : n]}
	parts = make([]Part, items)
	for i := range parts {
		parts[i] = d.part()
	}
	if len(d.b) > 0 || d.b == nil {
		return nil, 0, fault.New(fault.Corrupt, "the index is not of %d items", items)
	}
	return parts, 0, place(parts, length-size-footerSize)
}

// place gives every part its offset, as AppendIndexed laid them out.
func place(parts []Part, rows int64) error {
	var at int64
	for k := RowOutput; k <= RowCopy; k++ {
		for i := range parts {
			p := &parts[i]
			if p.Kind != k {
				continue
			}
			if p.Length < 1 || p.Length > rows-at {
				return fault.New(fault.Corrupt, "the index gives item %d %d of the %d bytes left", i, p.Length, rows-at)
			}
			p.Offset = at
			at += p.Length
		}
	}
	if at != rows {
		return fault.New(fault.Corrupt, "the index leaves %d bytes of rows to nobody", rows-at)
	}
	return nil
}

// decoder takes an index apart; b is nil once it could not.
type decoder struct{ b []byte }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n int) []byte {
	if len(d.b) < n {
		d.b = nil
		return make([]byte, n)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) part() (p Part) {
	p.Length = int64(d.uvarint())
	p.Kind = RowKind(d.bytes(1)[0])
	switch p.Kind {
	case RowOutput:
	case RowError:
		p.Class = fault.Class(d.bytes(int(d.bytes(1)[0])))
	case RowCopy:
		p.Copied = Copied{d.uvarint(), d.uvarint()}
	default:
		d.b = nil
	}
	return p
}
