package convert

import (
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"rollout/shared/fault"
)

// readBuffer is how many bytes of a column are read from the file at once.
const readBuffer = 256 << 10

// parquetReader reads the rows of a Parquet file as objects: groups are objects, lists are arrays, maps with text as
// keys are objects. It holds a page of each column.
type parquetReader struct {
	file   io.ReaderAt
	groups []parquet.RowGroup
	chunks []format.RowGroup // what the file says of groups
	left   int64             // rows of the present group
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
	if err := checkFooter(r, size); err != nil {
		return nil, err
	}
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true),
		parquet.ReadBufferSize(readBuffer))
	if err != nil {
		return nil, damaged(err)
	}
	p = &parquetReader{file: r, groups: f.RowGroups(), chunks: f.Metadata().RowGroups}
	byName := map[string]*parquet.Column{}
	var have []string
	for _, c := range f.Root().Columns() {
		have = append(have, c.Name())
		byName[c.Name()] = c
	}
	if len(have) == 0 {
		return nil, invalid("write it with columns", "the file has no columns")
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
		if err := p.beginGroup(); err != nil {
			return nil, err
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

// beginGroup moves to the first row of the next row group.
func (p *parquetReader) beginGroup() error {
	group, chunks := p.groups[0], p.chunks[0].Columns
	p.groups, p.chunks, p.left = p.groups[1:], p.chunks[1:], group.NumRows()
	var inMemory int64
	for _, l := range p.leaves {
		largest, err := checkPages(p.file, chunks[l.column].MetaData)
		if inMemory += largest; err == nil && inMemory > maxPages {
			err = invalid("choose some columns with --columns", "the pages of its columns need more than %d MiB", maxPages>>20)
		}
		if err != nil {
			return fault.Wrap(err, "the columns after row %d", p.number)
		}
		l.begin(group.ColumnChunks()[l.column])
	}
	return nil
}
