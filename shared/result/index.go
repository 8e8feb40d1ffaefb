package result

import (
	"encoding/binary"

	"rollout/shared/fault"
)

// The result of a run that asks identical requests once has the lines of copies,
// whose rows are written at the run's end. It ends in an index, with which the row of
// an item is found without reading the other rows.
//
//	output rows · error rows · lines of copies, each in item order
//	index   for each item: length uvarint · kind u8 · details
//	        details of an error: length of its class u8 · class
//	        details of a copy: original item uvarint · own line uvarint
//	footer  length of the index u32 LE · "RIDX"
const (
	footerSize  = 8
	footerMagic = "RIDX"
)

// RowKind is the kind of an item's row in a result.
type RowKind uint8

// The kinds.
const (
	RowOutput RowKind = iota
	RowError
	RowCopy
)

// Part is the part of a result that belongs to one item.
type Part struct {
	Kind           RowKind
	Class          fault.Class // of a RowError
	Copied                     // of a RowCopy
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

// AppendIndexed appends a result of the rows of all items, with its index. outputLen
// is the length of the output rows in bytes.
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

// ParseIndex reads the index of a result with that length and number of items. tail is
// the end of the result. If it does not contain the whole index, need is the length
// of the tail that does, and otherwise 0. An invalid index is Corrupt.
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
		return nil, 0, fault.New(fault.Corrupt, "the index does not have %d items", items)
	}
	return parts, 0, place(parts, length-size-footerSize)
}

// place sets the offsets of the parts in the order in which AppendIndexed writes them.
func place(parts []Part, rows int64) error {
	var at int64
	for k := RowOutput; k <= RowCopy; k++ {
		for i := range parts {
			p := &parts[i]
			if p.Kind != k {
				continue
			}
			if p.Length < 1 || p.Length > rows-at {
				return fault.New(fault.Corrupt, "the index gives item %d a length of %d, and %d bytes are left",
					i, p.Length, rows-at)
			}
			p.Offset = at
			at += p.Length
		}
	}
	if at != rows {
		return fault.New(fault.Corrupt, "%d bytes of rows are not in the index", rows-at)
	}
	return nil
}

// decoder decodes an index. b is nil after an error.
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
