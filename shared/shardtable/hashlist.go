package shardtable

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// The layout of a hash list. All numbers are big-endian, so that the order of entries
// is the order of their bytes: by hash, then by range and item.
//
//	header  "ROLLHSH" · version u8 · entry size u32 · reserved u32
//	entry   hash 16 bytes · range u32 · item u32 · line u32
//
// The document that names the list has the number of entries.
const (
	HashHeaderSize = 16
	HashEntrySize  = 28

	hashMagic   = "ROLLHSH"
	hashVersion = 1
)

// SegmentEntries is how many hashes of a range are sorted in memory. A range with more
// hashes gets several lists, all full but the last. This bounds the memory for
// planning a range of very short lines.
const SegmentEntries = 1 << 18

// Segments returns the number of lists for that many hashes of a range.
func Segments(hashes int) int { return (hashes + SegmentEntries - 1) / SegmentEntries }

// Hash represents the explicit id of a line, or its request: the first half of a
// blake3. The chance that any two of ten billion collide is below 2⁻⁶⁰.
type Hash [16]byte

// HashID returns the Hash of an explicit id.
func HashID(id []byte) Hash { return HashOf(identity.Content(id)) }

// HashOf returns the first half of a content id.
func HashOf(c identity.ContentID) (h Hash) {
	copy(h[:], c[:])
	return h
}

// Place is the position of an item: its range in the run, and its number and its line
// in the range, from 0.
type Place struct{ Range, Item, Line uint32 }

// Entry is a hash and an item with it.
type Entry struct {
	hi, lo uint64 // the hash as two numbers, which sort faster
	Place
}

func (e Entry) compareHash(o Entry) int {
	if c := cmp.Compare(e.hi, o.hi); c != 0 {
		return c
	}
	return cmp.Compare(e.lo, o.lo)
}

func (e Entry) compare(o Entry) int {
	if c := e.compareHash(o); c != 0 {
		return c
	}
	if c := cmp.Compare(e.Range, o.Range); c != 0 {
		return c
	}
	return cmp.Compare(e.Item, o.Item)
}

// HashList collects up to SegmentEntries hashes of one range, of 28 bytes each.
type HashList struct{ entries []Entry }

// Len returns the number of hashes.
func (l *HashList) Len() int { return len(l.entries) }

// Full reports whether the list must be written before the next Add.
func (l *HashList) Full() bool { return len(l.entries) >= SegmentEntries }

// Reset empties the list and keeps its memory.
func (l *HashList) Reset() { l.entries = l.entries[:0] }

// Add adds the hash of an item.
func (l *HashList) Add(h Hash, p Place) {
	l.entries = append(l.entries, Entry{binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:]), p})
}

// Write sorts the list and writes it.
func (l *HashList) Write(w io.Writer) error {
	slices.SortFunc(l.entries, Entry.compare)
	out := NewHashWriter(w)
	for _, e := range l.entries {
		if err := out.Append(e); err != nil {
			return err
		}
	}
	return out.Flush()
}

// HashWriter streams a hash list. The caller appends its entries in order.
type HashWriter struct {
	w     *bufio.Writer
	count uint64
	buf   [HashEntrySize]byte
}

// NewHashWriter starts a list. Append and Flush return the errors of w.
func NewHashWriter(w io.Writer) *HashWriter {
	b := &HashWriter{w: bufio.NewWriterSize(w, 32<<10)}
	b.w.Write(hashHeader()) // Flush returns the error
	return b
}

func hashHeader() []byte {
	b := append([]byte(hashMagic), hashVersion)
	b = binary.BigEndian.AppendUint32(b, HashEntrySize)
	return binary.BigEndian.AppendUint32(b, 0)
}

// Append writes the next entry.
func (w *HashWriter) Append(e Entry) error {
	be := binary.BigEndian
	be.PutUint64(w.buf[:], e.hi)
	be.PutUint64(w.buf[8:], e.lo)
	be.PutUint32(w.buf[16:], e.Range)
	be.PutUint32(w.buf[20:], e.Item)
	be.PutUint32(w.buf[24:], e.Line)
	w.count++
	_, err := w.w.Write(w.buf[:])
	return fault.Wrap(err, "write a list of hashes")
}

// Count returns the number of entries written.
func (w *HashWriter) Count() uint64 { return w.count }

// Flush writes everything buffered to the underlying writer.
func (w *HashWriter) Flush() error { return fault.Wrap(w.w.Flush(), "write a list of hashes") }

// HashReader streams a hash list.
type HashReader struct {
	r    io.Reader
	left uint64 // entries that are not read yet
	page []byte // entries that are read and not returned
	buf  []byte
	at   Entry
	ok   bool // at is an entry
}

// hashPageEntries is how many entries are read at once.
const hashPageEntries = 512

// OpenHashes opens a hash list of count entries: it reads the header and the first
// page. A list that HashList.Write cannot have written is Corrupt, here or while it
// is read.
func OpenHashes(r io.Reader, count uint64) (*HashReader, error) {
	if count > math.MaxInt64/HashEntrySize {
		return nil, fault.New(fault.Corrupt, "a list cannot have %d hashes", count)
	}
	l := &HashReader{r: r, left: count, buf: make([]byte, hashPageEntries*HashEntrySize)}
	if err := l.full(l.buf[:HashHeaderSize]); err != nil {
		return nil, err
	}
	if string(l.buf[:HashHeaderSize]) != string(hashHeader()) {
		return nil, fault.New(fault.Corrupt, "the object is not a list of hashes of version %d", hashVersion)
	}
	return l, l.next()
}

// full fills b. A list that ends before is Corrupt.
func (l *HashReader) full(b []byte) error {
	_, err := io.ReadFull(l.r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF { // not wrapped: then a connection broke
		return fault.WithKind(fault.Corrupt, err, "the list is truncated")
	}
	return fault.Wrap(err, "read a list of hashes")
}

// next reads the next entry into at. After the last one, ok is false.
func (l *HashReader) next() error {
	if len(l.page) == 0 {
		if err := l.readPage(); err != nil || len(l.page) == 0 {
			l.ok = false
			return err
		}
	}
	e := entryAt(l.page)
	l.page = l.page[HashEntrySize:]
	if l.ok && e.compare(l.at) <= 0 {
		l.ok = false
		return fault.New(fault.Corrupt, "the list is not sorted")
	}
	l.at, l.ok = e, true
	return nil
}

// readPage reads the next page. After the last one, the page stays empty.
func (l *HashReader) readPage() error {
	n := min(l.left, hashPageEntries)
	if n == 0 {
		if k, err := io.ReadFull(l.r, l.buf[:1]); k > 0 {
			return fault.New(fault.Corrupt, "bytes follow the list")
		} else if !errors.Is(err, io.EOF) {
			return fault.Wrap(err, "read a list of hashes")
		}
		return nil
	}
	l.left -= n
	l.page = l.buf[:n*HashEntrySize]
	return l.full(l.page)
}

// seek moves to the first entry whose hash is at least that of e.
func (l *HashReader) seek(e Entry) error {
	for l.ok && l.at.compareHash(e) < 0 {
		l.skipBelow(e.hi)
		if err := l.next(); err != nil {
			return err
		}
	}
	return nil
}

// skipBelow skips the next entries of the page whose hash begins with less than hi:
// almost all of a long list. It stops at an entry that is out of order, which next
// reports.
func (l *HashReader) skipBelow(hi uint64) {
	end, last := 0, l.at.hi
	for ; end < len(l.page); end += HashEntrySize {
		h := binary.BigEndian.Uint64(l.page[end:])
		if h < last || h >= hi {
			break
		}
		last = h
	}
	if end > 0 {
		l.at = entryAt(l.page[end-HashEntrySize:])
		l.page = l.page[end:]
	}
}
