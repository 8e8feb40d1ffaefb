package convert

import (
	"slices"
	"strings"
	"unicode/utf8"

	"rollout/shared/jsonl"
)

// cellType is how the cells of a CSV column become JSON values.
type cellType string

// The types of cells. An empty cell of another type than a string is null.
const (
	cellString cellType = "string"
	cellNumber cellType = "number"
	cellBool   cellType = "bool"
	cellJSON   cellType = "json"
)

// autoTypes asks for the types that all cells of each column have.
const autoTypes = "auto"

// cellTypes are the types of CSV columns, by the names of the output. The others are strings.
type cellTypes struct {
	named map[string]cellType
	found []cellType // by column, if they were looked for
}

// parseTypes parses "auto" or elements such as "age=number". auto is true for the former.
func parseTypes(list []string) (types cellTypes, auto bool, err error) {
	if len(list) == 1 && list[0] == autoTypes {
		return types, true, nil
	}
	types.named = map[string]cellType{}
	for _, text := range list {
		i := strings.LastIndexByte(text, '=')
		known := i > 0 &&
			slices.Contains([]cellType{cellString, cellNumber, cellBool, cellJSON}, cellType(text[i+1:]))
		if !known {
			return types, false, invalid("write auto, or COLUMN=TYPE with the type string, number, bool or json",
				"--types has %q", text)
		}
		types.named[text[:i]] = cellType(text[i+1:])
	}
	return types, false, nil
}

// of returns the types of the columns.
func (t cellTypes) of(names []string) ([]cellType, error) {
	if t.found != nil {
		return t.found, nil
	}
	for name := range t.named {
		if !slices.Contains(names, name) {
			return nil, invalid("there are: "+list(names), "--types names the column %s, which is missing", name)
		}
	}
	types := make([]cellType, len(names))
	for i, name := range names {
		types[i] = cellString
		if typ, ok := t.named[name]; ok {
			types[i] = typ
		}
	}
	return types, nil
}

// appendCell appends a cell as a JSON value.
func (t cellType) appendCell(dst []byte, cell string) ([]byte, error) {
	if !utf8.ValidString(cell) {
		return dst, invalid("write the file in UTF-8, for example with iconv -t UTF-8", "the cell is not valid UTF-8")
	}
	if t == cellString {
		return jsonl.AppendString(dst, cell), nil
	}
	text := strings.TrimSpace(cell)
	if text == "" {
		return append(dst, "null"...), nil
	}
	if !t.accepts(text) {
		return dst, invalid("correct it, or leave the column's type out of --types", "%q is not of type %s",
			describe([]byte(cell)), t)
	}
	if t == cellBool {
		text = strings.ToLower(text)
	}
	return jsonl.Compact(dst, []byte(text)), nil
}

// accepts reports whether a cell's text, which is not empty, is of the type.
func (t cellType) accepts(text string) bool {
	switch t {
	case cellNumber:
		return (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && jsonl.Check([]byte(text)) == nil
	case cellBool:
		return strings.EqualFold(text, "true") || strings.EqualFold(text, "false")
	case cellJSON:
		return jsonl.Check([]byte(text)) == nil
	}
	return true
}

// typeFinder finds the narrowest type of each column that accepts all of its cells. Text is JSON only if all of it are
// objects and arrays.
type typeFinder struct{ possible [][]cellType }

func newTypeFinder(columns int) *typeFinder {
	f := &typeFinder{possible: make([][]cellType, columns)}
	for i := range f.possible {
		f.possible[i] = []cellType{cellNumber, cellBool, cellJSON}
	}
	return f
}

// add looks at a record of strings.
func (f *typeFinder) add(names []string, record []byte) {
	var text []byte
	i := 0
	o := jsonl.ReadKnownObject(record)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		for string(m.Name) != names[i] { // a short row lacks members
			i++
		}
		text, _ = jsonl.Unquote(text[:0], m.Value)
		if cell := strings.TrimSpace(string(text)); cell != "" {
			f.possible[i] = slices.DeleteFunc(f.possible[i], func(t cellType) bool {
				return !t.accepts(cell) || t == cellJSON && cell[0] != '{' && cell[0] != '['
			})
		}
	}
}

// types returns what was found. A column without text stays one of strings.
func (f *typeFinder) types() []cellType {
	types := make([]cellType, len(f.possible))
	for i, p := range f.possible {
		types[i] = cellString
		if len(p) == 1 {
			types[i] = p[0]
		}
	}
	return types
}
