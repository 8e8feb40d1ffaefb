package corpus

import (
	"rollout/shared/fault"
)

// The constants of the format of compress(1), with codes of up to 16 bits and a code
// that clears the table.
const (
	firstBits = 9
	mostBits  = 16
	clearCode = 256
	firstFree = 257
)

// decompress decodes the codes of a file of compress(1), without the file's header
// of three bytes. Damaged codes, and a result of more than limit bytes, are a
// Corrupt fault.
//
// Codes are packed from the low bits up. They are 9 bits wide at first, and one bit
// wider each time the table has used all codes of a width. Where the width changes
// or the table is cleared, the codes are padded to a multiple of eight.
func decompress(b []byte, limit int) ([]byte, error) {
	var (
		prefix [1 << mostBits]uint16
		suffix [1 << mostBits]byte
		turned [1 << mostBits]byte // a string in reverse
		out    []byte
		bits   = firstBits
		free   = firstFree
		start  = 0 // the first bit of the codes of this width
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
			return nil, fault.New(fault.Corrupt, "compressed text: code %d at bit %d is undefined", code, at-bits)
		}
		n, c := 0, code
		if code == free { // this code defines the string that it stands for
			turned[0], n, c = head, 1, last
		}
		for ; c > 255; c, n = int(prefix[c]), n+1 {
			if c == clearCode || n == len(turned)-1 {
				return nil, fault.New(fault.Corrupt, "compressed text: code %d at bit %d has an endless string", code, at-bits)
			}
			turned[n] = suffix[c]
		}
		head, turned[n] = byte(c), byte(c)
		if n++; len(out)+n > limit {
			return nil, fault.New(fault.Corrupt, "compressed text: the text is longer than %d bytes", limit)
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

// window returns at least 17 bits of b, from bit at on.
func window(b []byte, at int) (v uint32) {
	for i := range 4 {
		if at/8+i < len(b) {
			v |= uint32(b[at/8+i]) << (8 * i)
		}
	}
	return v >> (at % 8)
}
