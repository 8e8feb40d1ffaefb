package shardtable

import (
	"encoding/binary"

	"rollout/shared/fault"
)

// findPage is how many entries FindHash reads at once.
const findPage = 512

// FindHash searches a hash list of count entries for a hash, and returns the first
// place with it. read returns length bytes of the list at an offset; FindHash calls
// it a few times, also for a very long list.
func FindHash(count uint64, h Hash, read func(offset, length int64) ([]byte, error)) (p Place, ok bool, err error) {
	be := binary.BigEndian
	want := Entry{hi: be.Uint64(h[:]), lo: be.Uint64(h[8:])}
	for lo, hi := uint64(0), count; lo < hi; {
		from := lo
		if n := hi - lo; n > findPage {
			from = lo + (n-findPage)/2
		}
		n := min(findPage, hi-from)
		b, err := read(HashHeaderSize+int64(from)*HashEntrySize, int64(n)*HashEntrySize)
		if err != nil {
			return p, false, err
		}
		if uint64(len(b)) != n*HashEntrySize {
			return p, false, fault.New(fault.Corrupt, "%d bytes of %d entries of a hash list", len(b), n)
		}
		first, last := entryAt(b), entryAt(b[len(b)-HashEntrySize:])
		switch {
		case want.compareHash(first) <= 0 && from > lo: // the first entry with the hash may be before the page
			hi = from
			if want.compareHash(first) == 0 {
				hi = from + 1
			}
			continue
		case want.compareHash(last) > 0:
			lo = from + n
			continue
		}
		for ; len(b) > 0; b = b[HashEntrySize:] {
			if e := entryAt(b); e.compareHash(want) == 0 {
				return e.Place, true, nil
			}
		}
		return p, false, nil
	}
	return p, false, nil
}

func entryAt(b []byte) Entry {
	be := binary.BigEndian
	return Entry{be.Uint64(b), be.Uint64(b[8:]), Place{be.Uint32(b[16:]), be.Uint32(b[20:]), be.Uint32(b[24:])}}
}
