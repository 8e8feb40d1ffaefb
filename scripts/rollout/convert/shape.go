package convert

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"rollout/shared/jsonl"
)

// valueKind is what the values at one place of the records have in common.
type valueKind uint8

const (
	none valueKind = iota // only null
	boolean
	integer // of 64 bits with a sign
	number  // that a 64-bit float holds without a loss of digits
	text
	array
	object // with the same members everywhere
	mixed  // anything else: kept as JSON text
)

// Limits of shapes. What exceeds them is mixed.
const (
	maxColumns  = 4096  // of the records
	maxMembers  = 256   // of an object in a record
	maxInner    = 16384 // members of all objects in records; a Parquet file has a column for each
	maxNesting  = 12
	maxExactInt = 1 << 53 // integers up to it are exact in a float
)

// shape describes the values at one place of all records that it has seen: of a record, a column, an element or a
// member. It grows with the number of different names alone.
type shape struct {
	kind    valueKind
	room    *int // for how many members objects have room, in all shapes together
	big     bool // an integer beyond maxExactInt was seen
	element *shape
	names   []string // of an object, in the order of the first one
	members []*shape
	at      map[string]int // of names
	objects uint64         // that were looked at
	seen    []uint64       // by member, the object that had it last
}

// newShape returns the shape of records before the first one.
func newShape() *shape {
	room := maxInner
	return &shape{kind: object, room: &room}
}

// add looks at a further value.
func (s *shape) add(raw []byte, depth int) {
	kind, big := kindOf(raw)
	if kind == none || s.kind == mixed {
		return
	}
	s.big = s.big || big
	first := s.kind == none
	if !first && kind != s.kind {
		numbers := (kind == integer || kind == number) && (s.kind == integer || s.kind == number)
		if s.kind = mixed; numbers && !s.big {
			s.kind = number
		}
		if s.kind == mixed {
			s.element, s.members = nil, nil
		}
		return
	}
	s.kind = kind
	switch {
	case depth > maxNesting && (kind == array || kind == object):
		s.kind = mixed
	case kind == array:
		s.addElements(raw, depth)
	case kind == object && !s.addMembers(raw, depth, first):
		s.kind, s.members = mixed, nil
	}
}

func (s *shape) addElements(raw []byte, depth int) {
	if s.element == nil {
		s.element = &shape{room: s.room}
	}
	a := jsonl.ReadKnownArray(raw)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		s.element.add(e, depth+1)
	}
}

// addMembers returns false if the object has other members than the ones before, none, one twice, or too many.
func (s *shape) addMembers(raw []byte, depth int, first bool) bool {
	s.objects++
	count := 0
	o := jsonl.ReadKnownObject(raw)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		i, known := s.at[string(m.Name)]
		switch count++; {
		case !known && (!first || count > maxMembers || *s.room == 0):
			return false
		case !known:
			*s.room--
			i = s.addName(string(m.Name))
		}
		if !s.firstTime(i) {
			return false
		}
		s.members[i].add(m.Value, depth+1)
	}
	return count > 0 && count == len(s.names)
}

// firstTime reports whether the present object has the member for the first time.
func (s *shape) firstTime(i int) bool {
	first := s.seen[i] != s.objects
	s.seen[i] = s.objects
	return first
}

// addName adds a member, and returns its index.
func (s *shape) addName(name string) int {
	if s.at == nil {
		s.at = map[string]int{}
	}
	s.at[name] = len(s.names)
	s.names = append(s.names, name)
	s.members, s.seen = append(s.members, &shape{room: s.room}), append(s.seen, 0)
	return len(s.names) - 1
}

// addColumn adds a column of the records, and returns its index.
func (s *shape) addColumn(name string) (int, error) {
	if len(s.names) == maxColumns {
		return 0, invalid(
			"if they are data, write them as the value of one member; or choose some with --columns",
			"the records have more than %d different columns",
			maxColumns,
		)
	}
	return s.addName(name), nil
}

// addRecord looks at a record, which may have other columns than the ones before. typed also looks at its values.
func (s *shape) addRecord(record []byte, typed bool) error {
	s.objects++
	o := jsonl.ReadKnownObject(record)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		i, known := s.at[string(m.Name)]
		if !known {
			var err error
			if i, err = s.addColumn(string(m.Name)); err != nil {
				return err
			}
		}
		if !s.firstTime(i) {
			return invalid("keep one of them", "the record has %q twice", m.Name)
		}
		if typed {
			s.members[i].add(m.Value, 1)
		}
	}
	return nil
}

// kindOf returns the kind of a value. big is true for an integer beyond maxExactInt.
func kindOf(raw []byte) (kind valueKind, big bool) {
	switch raw[0] {
	case 'n':
		return none, false
	case 't', 'f':
		return boolean, false
	case '"':
		return text, false
	case '[':
		return array, false
	case '{':
		return object, false
	}
	if bytes.ContainsAny(raw, ".eE") {
		if exactFloat(raw) {
			return number, false
		}
		return mixed, false
	}
	i, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || string(raw) == "-0" {
		return mixed, false
	}
	return integer, i > maxExactInt || i < -maxExactInt
}

// exactFloat reports whether a number has all of its digits after it was read as a 64-bit float and written again.
func exactFloat(raw []byte) bool {
	f, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && !math.IsInf(f, 0) && decimal(string(raw)) == decimal(strconv.FormatFloat(f, 'e', -1, 64))
}

// decimal returns the one way of writing a number's sign, digits and exponent.
func decimal(s string) string {
	negative := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	mantissa, exp, _ := strings.Cut(strings.ToLower(s), "e")
	e, _ := strconv.Atoi(strings.TrimPrefix(exp, "+"))
	whole, fraction, _ := strings.Cut(mantissa, ".")
	e -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	e += len(digits) - len(short)
	if short == "" {
		e = 0
	}
	if negative {
		short = "-" + short
	}
	return short + "e" + strconv.Itoa(e)
}
