package cuttable

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"rollout/shared/engine/identity"
	"rollout/shared/fault"
)

// The layout of an id list, all numbers little-endian. Entries are sorted by
// hash, then by item.
//
//	header  "ROLLIDS" · version u8 · entry size u32 · input u32 · range u32 · reserved u32 · count u64
//	entry   hash 16 bytes · item u32 · line u32
const (
	IDHeaderSize = 32
	IDEntrySize  = 24

	idMagic   = "ROLLIDS"
	idVersion = 1
)

// HashID is the first 16 bytes of the blake3 of a line's own id: ids are
// compared by it, at a chance below 2⁻⁶⁰ that any two of ten billion ids collide.
func HashID(id []byte) (h [16]byte) {
	c := identity.Content(id)
	copy(h[:], c[:])
	return h
}

// idEntry keeps the hash as two numbers, which sort faster.
type idEntry struct {
	hi, lo     uint64
	item, line uint32
}

func (e idEntry) compare(o idEntry) int {
	if c := e.compareHash(o); c != 0 {
		return c
	}
	return cmp.Compare(e.item, o.item)
}

func (e idEntry) compareHash(o idEntry) int {
	if c := cmp.Compare(e.hi, o.hi); c != 0 {
		return c
	}
	return cmp.Compare(e.lo, o.lo)
}

// IDList gathers the ids of one range, at 24 bytes each.
type IDList struct {
	entries []idEntry
}

// Len is the number of ids.
func (l *IDList) Len() int { return len(l.entries) }

// Add adds the id of an item. Item and line count from the start of the range,
// from 0.
func (l *IDList) Add(id []byte, item, line uint32) {
	h := HashID(id)
	l.entries = append(l.entries, idEntry{binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:]), item, line})
}

// Write sorts the list and writes it.
func (l *IDList) Write(w io.Writer, input, rangeIndex uint32) error {
	slices.SortFunc(l.entries, idEntry.compare)
	le := binary.LittleEndian
	buf := append(make([]byte, 0, IDHeaderSize), idMagic...)
	buf = append(buf, idVersion)
	buf = le.AppendUint32(buf, IDEntrySize)
	buf = le.AppendUint32(buf, input)
	buf = le.AppendUint32(buf, rangeIndex)
	buf = le.AppendUint32(buf, 0)
	buf = le.AppendUint64(buf, uint64(len(l.entries)))
	b := bufio.NewWriterSize(w, 32<<10)
	b.Write(buf) // errors are kept and returned by Flush
	for _, e := range l.entries {
		buf = binary.BigEndian.AppendUint64(buf[:0], e.hi)
		buf = binary.BigEndian.AppendUint64(buf, e.lo)
		buf = le.AppendUint32(buf, e.item)
		buf = le.AppendUint32(buf, e.line)
		b.Write(buf)
	}
	return fault.Wrap(b.Flush(), "write a list of ids")
}

// Duplicate is an item whose id an earlier line has.
type Duplicate struct {
	Item, Line           uint32 // in the current range, from 0
	List                 int    // the earlier list's position, or SameList
	FirstItem, FirstLine uint32 // of the line that was first, in its own range, from 0
}

// SameList is the List of a Duplicate whose first line is in the same range.
const SameList = -1

// Duplicates finds the items of the current id list whose id is there twice:
// the first line wins. Earlier are the lists of all ranges before it, in
// order. The result is sorted by item. Memory is bounded by the number of
// duplicates and a page a list.
func Duplicates(current io.Reader, earlier []io.Reader) ([]Duplicate, error) {
	cur, err := openIDs(current)
	if err != nil {
		return nil, fault.Wrap(err, "the current id list")
	}
	lists := make([]*idReader, len(earlier))
	for i, r := range earlier {
		if lists[i], err = openIDs(r); err != nil {
			return nil, fault.Wrap(err, "id list %d", i)
		}
	}
	var found []Duplicate
	for cur.ok {
		first, list := cur.at, SameList
		for i, l := range lists {
			if err := l.seek(first); err != nil {
				return nil, fault.Wrap(err, "id list %d", i)
			}
			if list == SameList && l.ok && l.at.compareHash(cur.at) == 0 {
				first, list = l.at, i
			}
		}
		for own := list == SameList; cur.ok && cur.at.compareHash(first) == 0; own = false {
			if !own {
				found = append(found, Duplicate{cur.at.item, cur.at.line, list, first.item, first.line})
			}
			if err := cur.next(); err != nil {
				return nil, fault.Wrap(err, "the current id list")
			}
		}
	}
	for i, l := range lists { // to the end, where a list that is cut off shows
		for l.ok {
			if err := l.next(); err != nil {
				return nil, fault.Wrap(err, "id list %d", i)
			}
		}
	}
	slices.SortFunc(found, func(a, b Duplicate) int { return cmp.Compare(a.Item, b.Item) })
	return found, nil
}

// idReader streams an id list.
type idReader struct {
	r    *bufio.Reader
	left uint64
	at   idEntry
	ok   bool // at is an entry
	buf  [IDEntrySize]byte
}

// openIDs reads the header and the first entry.
func openIDs(r io.Reader) (*idReader, error) {
	l := &idReader{r: bufio.NewReaderSize(r, 8<<10)}
	var h [IDHeaderSize]byte
	if err := l.full(h[:]); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	switch {
	case string(h[:7]) != idMagic:
		return nil, fault.New(fault.Corrupt, "the object does not start with %q", idMagic)
	case h[7] != idVersion:
		return nil, fault.New(fault.Corrupt, "version %d is not known, this program reads version %d", h[7], idVersion)
	case le.Uint32(h[8:]) != IDEntrySize || le.Uint32(h[20:]) != 0:
		return nil, fault.New(fault.Corrupt, "the header is not one of version %d", idVersion)
	}
	l.left = le.Uint64(h[24:])
	return l, l.next()
}

// full fills b; a list that ends too soon is Corrupt.
func (l *idReader) full(b []byte) error {
	_, err := io.ReadFull(l.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.As(fault.Corrupt, err, "the list is cut off")
	}
	return fault.Wrap(err, "read a list of ids")
}

// next reads the next entry; ok is false behind the last.
func (l *idReader) next() error {
	if l.left == 0 {
		l.ok = false
		if _, err := l.r.Peek(1); err == nil {
			return fault.New(fault.Corrupt, "bytes follow the list")
		}
		return nil
	}
	if err := l.full(l.buf[:]); err != nil {
		l.ok = false
		return err
	}
	l.left--
	b := l.buf[:]
	e := idEntry{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint32(b[20:])}
	if l.ok && e.compare(l.at) <= 0 {
		l.ok = false
		return fault.New(fault.Corrupt, "the list is not sorted")
	}
	l.at, l.ok = e, true
	return nil
}

// seek moves to the first entry whose hash is not below e's.
func (l *idReader) seek(e idEntry) error {
	for l.ok && l.at.compareHash(e) < 0 {
		if err := l.next(); err != nil {
			return err
		}
	}
	return nil
}
