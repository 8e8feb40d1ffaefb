package dialect

import (
	"strconv"
	"time"
	"unicode/utf8"

	"rollout/shared/jsonl"
)

// row is an object that is being written, with a comma after each member.
type row struct {
	b      []byte
	graded bool // it has scores
}

func (w *row) close() []byte {
	w.end('}')
	w.b[len(w.b)-1] = '\n' // end appended a comma
	return w.b
}

// open starts an object or array: as the value of the member name, or as an element if
// name is "".
func (w *row) open(name string, bracket byte) {
	if name != "" {
		w.b = appendName(w.b, name)
	}
	w.b = append(w.b, bracket)
}

// end closes the innermost object or array.
func (w *row) end(bracket byte) {
	if last := len(w.b) - 1; w.b[last] == ',' {
		w.b[last] = bracket
	} else {
		w.b = append(w.b, bracket)
	}
	w.b = append(w.b, ',')
}

func (w *row) text(name, v string) {
	w.b = append(jsonl.AppendString(appendName(w.b, name), v), ',')
}

func (w *row) null(name string) { w.raw(name, []byte("null")) }

// textOrNull writes null for "".
func (w *row) textOrNull(name, v string) {
	if v == "" {
		w.null(name)
		return
	}
	w.text(name, v)
}

func (w *row) int(name string, v int64) {
	w.b = append(strconv.AppendInt(appendName(w.b, name), v, 10), ',')
}

func (w *row) uint(name string, v uint64) {
	w.b = append(strconv.AppendUint(appendName(w.b, name), v, 10), ',')
}

// clamped writes the lowered max_tokens, if there is one.
func (w *row) clamped(name string, a Answer) {
	if a.ClampedMaxTokens > 0 {
		w.int(name, a.ClampedMaxTokens)
	}
}

// raw writes a value that is known to be valid JSON on one line.
func (w *row) raw(name string, v []byte) {
	w.b = append(append(appendName(w.b, name), v...), ',')
}

// foreign writes a value from an engine if it is valid JSON, and reports whether it did.
func (w *row) foreign(name string, v []byte) bool {
	if len(v) == 0 || !utf8.Valid(v) || jsonl.Check(v) != nil {
		return false
	}
	w.b = append(jsonl.Compact(appendName(w.b, name), v), ',')
	return true
}

// tokens writes a number of tokens, or null if it is unknown.
func (w *row) tokens(name string, n int64, unknown bool) {
	if unknown {
		w.null(name)
		return
	}
	w.int(name, n)
}

// rest writes the members of an object from an engine, except those that skip names.
// It writes nothing for what is not an object of valid JSON.
func (w *row) rest(object []byte, skip func(name string) bool) {
	if len(object) == 0 || !utf8.Valid(object) || jsonl.Check(object) != nil {
		return
	}
	o := jsonl.ReadObject(object)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if !skip(string(m.Name)) {
			w.b = append(append(w.b, m.RawName...), ':')
			w.b = append(jsonl.Compact(w.b, m.Value), ',')
		}
	}
}

// id writes the line's own id as it was written, or else id, or else null.
func (w *row) id(name string, rawID []byte, id string) {
	w.b = appendName(w.b, name)
	switch {
	case rawID != nil:
		w.b = append(w.b, rawID...)
	case id != "":
		w.b = jsonl.AppendQuoted(w.b, id)
	default:
		w.b = append(w.b, "null"...)
	}
	w.b = append(w.b, ',')
}

// time writes a time in RFC 3339 with milliseconds, in UTC.
func (w *row) time(name string, t time.Time) {
	w.b = appendTime(append(appendName(w.b, name), '"'), t.UTC())
	w.b = append(w.b, '"', ',')
}

// appendTime is time.AppendFormat for one layout, three times as fast.
func appendTime(dst []byte, t time.Time) []byte {
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	}
	hour, minute, second := t.Clock()
	dst = append(appendPair(appendPair(dst, year/100), year%100), '-')
	dst = append(appendPair(dst, int(month)), '-')
	dst = append(appendPair(dst, day), 'T')
	dst = append(appendPair(dst, hour), ':')
	dst = append(appendPair(dst, minute), ':')
	dst = append(appendPair(dst, second), '.')
	milli := t.Nanosecond() / 1e6
	return append(appendPair(append(dst, '0'+byte(milli/100)), milli%100), 'Z')
}

// appendPair appends two digits.
func appendPair(dst []byte, n int) []byte {
	return append(dst, '0'+byte(n/10), '0'+byte(n%10))
}
