package convert

import (
	"fmt"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"rollout/shared/jsonl"
)

// newField returns the field of a column, and adds the leaves below it to the reader.
func (p *parquetReader) newField(c *parquet.Column, name string) (*field, error) {
	if !utf8.ValidString(name) {
		return nil, invalid("rename it", "the name of the column %q is not valid UTF-8", fmt.Sprint(c.Path()))
	}
	f, err := p.newSingle(c)
	if err != nil {
		return nil, err
	}
	if c.Repeated() { // without a list around it
		f = listOf(f, c)
	}
	f.name = append(jsonl.AppendString(nil, name), ':')
	return f, nil
}

// listOf returns the list of a repeated column's values.
func listOf(element *field, repeated *parquet.Column) *field {
	return &field{kind: asList, fields: []*field{element}, leaves: element.leaves,
		repeat: repeated.MaxRepetitionLevel(), some: repeated.MaxDefinitionLevel()}
}

// newSingle returns the field of a column as if it were not repeated.
func (p *parquetReader) newSingle(c *parquet.Column) (f *field, err error) {
	f = &field{optional: c.Optional(), def: c.MaxDefinitionLevel()}
	if c.Leaf() {
		f.convert, err = p.converter(c)
		f.leaves = []*leaf{{column: c.Index()}}
		p.leaves = append(p.leaves, f.leaves...)
		return f, err
	}
	switch logicalType(c).(type) {
	case *format.ListType:
		if only := onlyRepeated(c); only != nil {
			return p.fillList(f, c, only)
		}
	case *format.MapType:
		if entry := onlyRepeated(c); entry != nil && len(entry.Columns()) == 2 {
			return p.fillMap(f, entry)
		}
	case *format.VariantType:
		return nil, unsupported(c)
	}
	f.kind = asObject
	return f, p.addFields(f, c)
}

// addFields adds a field for each column of a group.
func (p *parquetReader) addFields(f *field, group *parquet.Column) error {
	for _, c := range group.Columns() {
		m, err := p.newField(c, c.Name())
		if err != nil {
			return err
		}
		f.fields = append(f.fields, m)
		f.leaves = append(f.leaves, m.leaves...)
	}
	if len(f.leaves) == 0 {
		return unsupported(group)
	}
	return nil
}

// onlyRepeated returns the only column of a group if it is repeated, else nil.
func onlyRepeated(c *parquet.Column) *parquet.Column {
	if cs := c.Columns(); len(cs) == 1 && cs[0].Repeated() {
		return cs[0]
	}
	return nil
}

// fillList completes the field of a list. Its elements are the only column of the repeated group; in files of old
// writers, the repeated column itself.
func (p *parquetReader) fillList(f *field, list, repeated *parquet.Column) (*field, error) {
	inner := repeated.Columns()
	var element *field
	var err error
	if repeated.Leaf() || len(inner) != 1 || repeated.Name() == "array" || repeated.Name() == list.Name()+"_tuple" {
		element, err = p.newSingle(repeated)
	} else {
		element, err = p.newField(inner[0], "")
	}
	if err != nil {
		return nil, err
	}
	l := listOf(element, repeated)
	l.optional, l.def = f.optional, f.def
	return l, nil
}

// fillMap completes the field of a map. One whose keys are not text becomes a list of objects.
func (p *parquetReader) fillMap(f *field, entry *parquet.Column) (*field, error) {
	element, err := p.newSingle(entry)
	if err != nil {
		return nil, err
	}
	m := listOf(element, entry)
	m.optional, m.def = f.optional, f.def
	if key := entry.Columns()[0]; key.Leaf() && key.Required() && isText(key) {
		m.kind, m.fields = asMap, element.fields
	}
	return m, nil
}

// isText reports whether all values of a leaf are text.
func isText(c *parquet.Column) bool {
	switch logicalType(c).(type) {
	case *format.StringType, *format.EnumType:
		return true
	}
	return false
}

// logicalType returns the logical type of a column, or nil.
func logicalType(c *parquet.Column) format.LogicalTypeValue {
	if t := c.Type().LogicalType(); t != nil {
		return t.Value
	}
	return nil
}

// unsupported returns the error of a column whose values JSON cannot express.
func unsupported(c *parquet.Column) error {
	return invalid("leave it out: choose the others with --columns",
		"the column %s is of type %s, which is not converted", fmt.Sprint(c.Path()), c.Type())
}
