package jsonl

import "unicode/utf8"

// Member is one member of an object. Its slices belong to the object's text.
type Member struct {
	Name    []byte // decoded
	RawName []byte // as written, with its quotes
	Value   []byte // as written, without white space around it
}

// Object reads the members of an object, in order, repeated names included.
type Object struct {
	b    []byte
	i    int
	open bool
	err  error
}

// ReadObject starts reading raw, which holds one object and perhaps white
// space around it.
func ReadObject(raw []byte) Object {
	i := space(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return Object{err: unexpected(raw, i, "an object")}
	}
	o := Object{b: raw, i: space(raw, i+1), open: true}
	if o.i < len(raw) && raw[o.i] == '}' {
		o.finish()
	}
	return o
}

// Next returns the next member, or false at the end or at the first fault.
// Members before a fault are whole.
func (o *Object) Next() (m Member, ok bool) {
	if !o.open {
		return m, false
	}
	end, escaped, next, err := name(o.b, o.i)
	if err != nil {
		return m, o.fail(err)
	}
	m.RawName = o.b[o.i:end]
	m.Name = m.RawName[1 : len(m.RawName)-1]
	if escaped {
		m.Name, _ = Unquote(nil, m.RawName)
	}
	end, err = walk(o.b, next, 1)
	if err != nil {
		return m, o.fail(err)
	}
	m.Value = o.b[next:end]
	o.i = space(o.b, end)
	switch {
	case o.i < len(o.b) && o.b[o.i] == ',':
		o.i = space(o.b, o.i+1)
	case o.i < len(o.b) && o.b[o.i] == '}':
		o.finish()
	default: // this member is whole; the next call reports the fault
		o.fail(unexpected(o.b, o.i, "',' or '}'"))
	}
	return m, true
}

// Err returns the first fault; nil if the object was read to its end and
// nothing follows it.
func (o *Object) Err() error { return o.err }

// finish passes the closing brace at i.
func (o *Object) finish() {
	o.open = false
	if end := space(o.b, o.i+1); end < len(o.b) {
		o.err = unexpected(o.b, end, "the end")
	}
}

func (o *Object) fail(err error) bool {
	o.open, o.err = false, err
	return false
}

// Elements appends the elements of the array raw to dst, as written.
func Elements(dst [][]byte, raw []byte) ([][]byte, error) {
	i := space(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return dst, unexpected(raw, i, "an array")
	}
	i = space(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return dst, nil
	}
	for {
		end, err := walk(raw, i, 1)
		if err != nil {
			return dst, err
		}
		dst = append(dst, raw[i:end])
		i = space(raw, end)
		if i >= len(raw) || raw[i] != ',' {
			break
		}
		i = space(raw, i+1)
	}
	if i >= len(raw) || raw[i] != ']' {
		return dst, unexpected(raw, i, "',' or ']'")
	}
	return dst, nil
}

// Unquote appends the decoded string raw to dst; false if raw is not a string
// in quotes. The escape of a lone surrogate becomes the three bytes that UTF-8
// would use for it (so that the text can be written back as it was); such text
// is not valid UTF-8.
func Unquote(dst, raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return dst, false
	}
	end, escaped, err := text(raw, 0)
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

// appendRune appends r, surrogates as well.
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
