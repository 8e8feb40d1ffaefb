package convert

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"rollout/shared/fault"
)

// readBuffer is how many bytes of a column are read from the file at once.
const readBuffer = 256 << 10

// parquetReader reads the rows of a Parquet file as objects: groups are objects, lists are arrays, maps with text as
// keys are objects. It holds a page of each column.
type parquetReader struct {
	groups []parquet.RowGroup
	left   int64 // rows of the present group
	fields []*field
	leaves []*leaf
	names  []string
	number uint64 // of the last row, from 1
	lost   uint64 // values that are not numbers in JSON
	out    []byte
}

// newParquetReader opens a file of size bytes.
func newParquetReader(r io.ReaderAt, size int64, cs columns) (p *parquetReader, err error) {
	defer recoverDamage(&err)
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true),
		parquet.ReadBufferSize(readBuffer))
	if err != nil {
		return nil, damaged(err)
	}
	p = &parquetReader{groups: f.RowGroups()}
	byName := map[string]*parquet.Column{}
	var have []string
	for _, c := range f.Root().Columns() {
		have = append(have, c.Name())
		byName[c.Name()] = c
	}
	if p.names, err = cs.names(have); err != nil {
		return nil, err
	}
	for i, name := range p.names {
		from := name
		if cs != nil {
			from = cs[i].from
		}
		field, err := p.newField(byName[from], name)
		if err != nil {
			return nil, err
		}
		p.fields = append(p.fields, field)
	}
	return p, nil
}

func (p *parquetReader) columns() []string { return p.names }

func (p *parquetReader) place() string { return row(p.number) }

func (p *parquetReader) close() error {
	for _, l := range p.leaves {
		l.end()
	}
	return nil
}

// next implements reader.
func (p *parquetReader) next() (record []byte, err error) {
	defer recoverDamage(&err)
	for p.left == 0 {
		if len(p.groups) == 0 {
			return nil, io.EOF
		}
		group := p.groups[0]
		p.groups, p.left = p.groups[1:], group.NumRows()
		chunks := group.ColumnChunks()
		for _, l := range p.leaves {
			l.begin(chunks[l.column])
		}
	}
	p.left--
	p.number++
	p.out = append(p.out[:0], '{')
	for i, f := range p.fields {
		if i > 0 {
			p.out = append(p.out, ',')
		}
		p.out = append(p.out, f.name...)
		if p.out, err = f.append(p.out); err != nil {
			return nil, fault.Wrap(err, "row %d, column %s", p.number, p.names[i])
		}
	}
	p.out = append(p.out, '}')
	return p.out, nil
}
