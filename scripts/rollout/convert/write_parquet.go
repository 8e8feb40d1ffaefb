package convert

import (
	"io"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Sizes of what a Parquet file is written in, in bytes of records. A row group is buffered, compressed, until it is
// complete.
const (
	rowGroupBytes = 128 << 20
	batchBytes    = 1 << 20
	batchRows     = 1024
)

// parquetWriter writes records as rows of a schema that fits all of them.
type parquetWriter struct {
	w       *parquet.GenericWriter[any]
	root    *parquetPlace
	leaves  [][]parquet.Value // of the record that is being written, by column
	rows    []parquet.Row
	bytes   int // of the records in rows
	grouped int // of the records in the row group
}

func newParquetWriter(w io.Writer, s *shape) (*parquetWriter, error) {
	if len(s.names) == 0 {
		return nil, invalid("write JSON lines or CSV", "the input has no columns, which a Parquet file must have")
	}
	schema, root := schemaOf(s)
	return &parquetWriter{
		w: parquet.NewGenericWriter[any](
			w,
			schema,
			parquet.Compression(&zstd.Codec{}),
			parquet.CreatedBy("rollout", "", ""),
		),
		root: root, leaves: make([][]parquet.Value, root.leaves),
	}, nil
}

func (p *parquetWriter) write(record []byte) error {
	for i := range p.leaves {
		p.leaves[i] = p.leaves[i][:0]
	}
	if err := p.members(p.root, record, 0); err != nil {
		return err
	}
	p.rows = append(p.rows, parquet.MakeRow(p.leaves...))
	if p.bytes += len(record); p.bytes < batchBytes && len(p.rows) < batchRows {
		return nil
	}
	return p.writeBatch()
}

// writeBatch writes the rows that are collected, and the row group if it is complete.
func (p *parquetWriter) writeBatch() error {
	if _, err := p.w.WriteRows(p.rows); err != nil {
		return unwritten(err)
	}
	p.grouped += p.bytes
	p.rows, p.bytes = p.rows[:0], 0
	if p.grouped < rowGroupBytes {
		return nil
	}
	p.grouped = 0
	return unwritten(p.w.Flush())
}

func (p *parquetWriter) close() error {
	if err := p.writeBatch(); err != nil {
		return err
	}
	return unwritten(p.w.Close())
}

// members appends the values of an object's members to the leaves. rep is the repetition level of the first one.
func (p *parquetWriter) members(at *parquetPlace, raw []byte, rep int) error {
	clear(at.values)
	o := jsonl.ReadKnownObject(raw)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		at.values[at.at[string(m.Name)]] = m.Value
	}
	for i, member := range at.members {
		if err := p.value(member, at.values[i], rep, at.def); err != nil {
			return fault.Wrap(err, "column %s", at.names[i])
		}
	}
	return nil
}

// value appends a value to the leaves; a missing one is nil. def is the definition level of its parent.
func (p *parquetWriter) value(at *parquetPlace, raw []byte, rep, def int) error {
	if raw == nil || raw[0] == 'n' {
		p.null(at, rep, def)
		return nil
	}
	switch at.kind {
	case object:
		return p.members(at, raw, rep)
	case array:
		return p.list(at, raw, rep)
	}
	v, err := leafValue(at.kind, raw)
	p.leaves[at.column] = append(p.leaves[at.column], v.Level(rep, at.def, at.column))
	return err
}

// null appends the end of a path to every leaf below a place.
func (p *parquetWriter) null(at *parquetPlace, rep, def int) {
	for c := at.column; c < at.column+at.leaves; c++ {
		p.leaves[c] = append(p.leaves[c], parquet.NullValue().Level(rep, def, c))
	}
}

func (p *parquetWriter) list(at *parquetPlace, raw []byte, rep int) error {
	a := jsonl.ReadKnownArray(raw)
	empty := true
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		if err := p.value(at.elements, e, rep, at.def+1); err != nil {
			return err
		}
		empty, rep = false, at.rep+1
	}
	if empty {
		p.null(at, rep, at.def)
	}
	return nil
}

// leafValue converts a JSON value, which is not null, to one of a column.
func leafValue(kind valueKind, raw []byte) (parquet.Value, error) {
	switch kind {
	case boolean:
		return parquet.BooleanValue(raw[0] == 't'), nil
	case integer:
		i, err := strconv.ParseInt(string(raw), 10, 64)
		return parquet.Int64Value(i), err
	case number:
		f, err := strconv.ParseFloat(string(raw), 64)
		return parquet.DoubleValue(f), err
	case text:
		b, err := plainText(raw)
		return parquet.ByteArrayValue(b), err
	}
	return parquet.ByteArrayValue(append([]byte(nil), raw...)), nil // the record's memory is used again
}
