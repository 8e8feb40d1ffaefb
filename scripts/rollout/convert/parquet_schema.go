package convert

import (
	"github.com/parquet-go/parquet-go"
)

// place is one place of a Parquet schema that is made of a shape. Every place may be null.
type parquetPlace struct {
	kind     valueKind
	column   int // of a leaf; else of the first leaf below
	leaves   int // leaves below, or 1
	rep, def int // levels of a value that is not null
	elements *parquetPlace
	names    []string
	members  []*parquetPlace
	at       map[string]int
	values   [][]byte // scratch: the values of the members of one object
}

// group is a Parquet group whose fields keep their order; the library's own sorts them.
type group struct {
	parquet.Group
	fields []parquet.Field
}

func (g group) Fields() []parquet.Field { return g.fields }

// schemaOf returns the Parquet schema of a shape: structs and lists where the values have one shape, and JSON text
// where they differ.
func schemaOf(s *shape) (*parquet.Schema, *parquetPlace) {
	columns := 0 // at most maxColumns and maxInner, which is less than the library allows
	root := &parquetPlace{kind: object}
	node := root.fill(s, &columns, 0, 0)
	return parquet.NewSchema("records", node), root
}

// fill completes an object's place from its shape, and returns its group.
func (p *parquetPlace) fill(s *shape, columns *int, rep, def int) parquet.Node {
	p.names, p.at, p.rep, p.def, p.column = s.names, s.at, rep, def, *columns
	p.values = make([][]byte, len(s.names))
	g := group{Group: parquet.Group{}}
	for i, name := range s.names {
		member, node := placeOf(s.members[i], columns, rep, def+1)
		p.members = append(p.members, member)
		g.Group[name] = node
	}
	sorted := map[string]parquet.Field{}
	for _, f := range g.Group.Fields() {
		sorted[f.Name()] = f
	}
	for _, name := range s.names {
		g.fields = append(g.fields, sorted[name])
	}
	p.leaves = *columns - p.column
	return g
}

// placeOf returns the place and the node of an optional value whose levels, if it is not null, are given.
func placeOf(s *shape, columns *int, rep, def int) (*parquetPlace, parquet.Node) {
	p := &parquetPlace{kind: s.kind, column: *columns, leaves: 1, rep: rep, def: def}
	var node parquet.Node
	switch s.kind {
	case object:
		node = p.fill(s, columns, rep, def)
		return p, parquet.Optional(node)
	case array:
		var element parquet.Node
		p.elements, element = placeOf(s.element, columns, rep+1, def+2)
		p.leaves = *columns - p.column
		return p, parquet.Optional(parquet.List(element))
	case boolean:
		node = parquet.Leaf(parquet.BooleanType)
	case integer:
		node = parquet.Int(64)
	case number:
		node = parquet.Leaf(parquet.DoubleType)
	case none, text:
		node = parquet.String()
	default:
		node = parquet.JSON()
	}
	*columns++
	return p, parquet.Optional(node)
}
