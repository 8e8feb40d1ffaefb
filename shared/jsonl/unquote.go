package jsonl

import "unicode/utf8"

// Unquote appends the decoded JSON string raw to dst. It returns false if raw is not a
// string in quotes. The escape of a lone surrogate becomes the three bytes that UTF-8
// would use for it, so that AppendQuoted can write it back; such text is not valid
// UTF-8.
func Unquote(dst, raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return dst, false
	}
	end, escaped, err := stringEnd(raw, 0)
	if err != nil || end != len(raw) {
		return dst, false
	}
	b := raw[1 : len(raw)-1]
	if !escaped {
		return append(dst, b...), true
	}
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			i++
			continue
		}
		if b[i+1] != 'u' {
			dst = append(dst, unescaped(b[i+1]))
			i += 2
			continue
		}
		r, _ := hex4(b, i+2)
		i += 6
		if r >= 0xD800 && r < 0xDC00 && i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u' {
			if low, _ := hex4(b, i+2); low >= 0xDC00 && low < 0xE000 {
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
				i += 6
			}
		}
		dst = appendRune(dst, r)
	}
	return dst, true
}

// appendRune appends r, which may be a surrogate.
func appendRune(dst []byte, r rune) []byte {
	if r >= 0xD800 && r < 0xE000 {
		return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}
