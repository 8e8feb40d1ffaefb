package convert

import (
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"
)

// fieldKind is how a field's values become JSON.
type fieldKind uint8

const (
	asValue  fieldKind = iota // of a leaf
	asObject                  // its fields are members
	asList                    // its only field is the element
	asMap                     // its fields are key and value; keys become names
)

// field is one place of the schema that becomes a value, whose levels say when it is null.
type field struct {
	name     []byte // as JSON, with a colon; of members
	kind     fieldKind
	optional bool
	def      int // definition level of a value that is not null
	repeat   int // of lists and maps: repetition level of the second element
	some     int // of lists and maps: definition level of an element
	fields   []*field
	leaves   []*leaf // below
	convert  func(dst []byte, v parquet.Value) ([]byte, error)
}

// append appends the next value as JSON.
func (f *field) append(dst []byte) ([]byte, error) {
	v, err := f.leaves[0].peek()
	switch {
	case len(dst) > maxRecord:
		return dst, invalid("leave the column out with --columns", "the row has more than %d MiB", maxRecord>>20)
	case err != nil:
		return dst, tooFew(err)
	case f.optional && v.DefinitionLevel() < f.def:
		return append(dst, "null"...), f.skip()
	case f.kind == asList:
		return f.appendElements(dst, '[', ']', v)
	case f.kind == asMap:
		return f.appendElements(dst, '{', '}', v)
	case f.kind == asObject:
		return f.appendMembers(dst)
	}
	if v, err = f.leaves[0].take(); err != nil {
		return dst, err
	}
	return f.convert(dst, v)
}

func (f *field) appendMembers(dst []byte) (_ []byte, err error) {
	dst = append(dst, '{')
	for i, m := range f.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.name...)
		if dst, err = m.append(dst); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendElements appends a list or a map, whose next value is v.
func (f *field) appendElements(dst []byte, open, end byte, v parquet.Value) (_ []byte, err error) {
	dst = append(dst, open)
	if v.DefinitionLevel() < f.some {
		return append(dst, end), f.skip()
	}
	for {
		if dst, err = f.fields[0].append(dst); err != nil {
			return dst, err
		}
		if f.kind == asMap {
			dst = append(dst, ':')
			if dst, err = f.fields[1].append(dst); err != nil {
				return dst, err
			}
		}
		v, err := f.leaves[0].peek()
		if errors.Is(err, io.EOF) || err == nil && v.RepetitionLevel() != f.repeat {
			return append(dst, end), nil
		}
		if err != nil {
			return dst, damaged(err)
		}
		dst = append(dst, ',')
	}
}

// skip takes the value that says in every leaf that there is nothing.
func (f *field) skip() error {
	for _, l := range f.leaves {
		if _, err := l.take(); err != nil {
			return err
		}
	}
	return nil
}
