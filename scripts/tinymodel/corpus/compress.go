package corpus

import (
	"rollout/shared/fault"
)

// The constants of the format that compress(1) writes, with codes of up to 16
// bits and a code that clears the table.
const (
	firstBits = 9
	mostBits  = 16
	clearCode = 256
	firstFree = 257
)

// decompress decodes the codes of a file of compress(1), without its header of
// three bytes. More than limit bytes are an error (Corrupt).
//
// The format: codes are packed from the low bits up. They are 9 bits wide, one
// more each time the table has filled the codes of a width, and padded to a
// multiple of eight codes wherever the width changes or the table is cleared.
func decompress(b []byte, limit int) ([]byte, error) {
	var (
		prefix [1 << mostBits]uint16
		suffix [1 << mostBits]byte
		turned [1 << mostBits]byte // a string, its end first
		out    []byte
		bits   = firstBits
		free   = firstFree
		start  = 0 // the bit at which the codes of this width began
		at     = 0
		last   = -1
		head   byte // the first byte of the last string
	)
	widen := func(to int) {
		at += (bits*8 - (at-start)%(bits*8)) % (bits * 8)
		start, bits = at, to
	}
	for {
		if bits < mostBits && free > 1<<bits-1 {
			widen(bits + 1)
		}
		if at+bits > len(b)*8 {
			return out, nil
		}
		code := int(window(b, at) & (1<<bits - 1))
		at += bits
		if code == clearCode {
			widen(firstBits)
			free, last = firstFree, -1
			continue
		}
		if last < 0 && code > 255 || code > free {
			return nil, fault.New(fault.Corrupt, "compressed text: code %d at bit %d names no string", code, at-bits)
		}
		n, c := 0, code
		if code == free { // the string that this code is about to make
			turned[0], n, c = head, 1, last
		}
		for ; c > 255; c, n = int(prefix[c]), n+1 {
			if c == clearCode || n == len(turned)-1 {
				return nil, fault.New(fault.Corrupt, "compressed text: code %d at bit %d has no end", code, at-bits)
			}
			turned[n] = suffix[c]
		}
		head, turned[n] = byte(c), byte(c)
		if n++; len(out)+n > limit {
			return nil, fault.New(fault.Corrupt, "compressed text: it is longer than %d bytes", limit)
		}
		for n > 0 {
			n--
			out = append(out, turned[n])
		}
		if last >= 0 && free < 1<<mostBits {
			prefix[free], suffix[free] = uint16(last), head
			free++
		}
		last = code
	}
}

// window returns the bits of b from the given one on, at least 17 of them.
func window(b []byte, at int) (v uint32) {
	for i := range 4 {
		if at/8+i < len(b) {
			v |= uint32(b[at/8+i]) << (8 * i)
		}
	}
	return v >> (at % 8)
}
