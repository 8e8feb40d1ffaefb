package convert

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// csvReader reads rows under a header. Each row becomes an object of the header's names. A row with fewer fields lacks
// the last members; one with more is an error, unless the fields beyond the header are empty.
type csvReader struct {
	src      io.Closer
	limit    *bounded
	rows     *csv.Reader
	header   []string
	selected columns
	order    []int    // which fields become members, in order
	names    []string // of the members
	raw      [][]byte // of the names, as JSON
	types    []cellType
	short    uint64 // rows with fewer fields than the header
	line     int
	out      []byte
}

// newCSVReader reads the header.
func newCSVReader(src io.ReadCloser, comma rune, cs columns, types cellTypes) (*csvReader, error) {
	limit := &bounded{r: src, what: "one CSV row", hint: `look for a quote (") that is not closed`}
	limit.begin()
	buffered := bufio.NewReaderSize(limit, 64<<10)
	if bom, err := buffered.Peek(3); err == nil && string(bom) == "\xEF\xBB\xBF" {
		_, _ = buffered.Discard(3) // in the buffer
	}
	if comma == ',' {
		comma = delimiterOf(buffered)
	}
	c := &csvReader{src: src, limit: limit, rows: csv.NewReader(&fewFields{r: buffered, comma: byte(comma)}), selected: cs}
	c.rows.Comma, c.rows.FieldsPerRecord, c.rows.ReuseRecord = comma, -1, true
	header, err := c.rows.Read()
	if errors.Is(err, io.EOF) {
		return c, nil // no rows either
	}
	if err != nil {
		return nil, c.failed(err)
	}
	for i, name := range header {
		if strings.ContainsRune(name, '\r') { // the reader takes it out of line ends
			return nil, invalid("end the lines with a line feed, for example with tr '\\r' '\\n'",
				"the header has a carriage return without a line feed")
		}
		c.header = append(c.header, columnName(name, i))
	}
	return c, c.selectColumns(types)
}

// columnName returns the name of a header's field. pandas writes its index under an empty name.
func columnName(field string, i int) string {
	if field == "" {
		return fmt.Sprintf("column_%d", i+1)
	}
	return strings.Clone(field) // the reader reuses its memory
}

// delimiterOf returns what separates the fields of a header without a comma: a semicolon, a tab or a bar, if it has
// one.
func delimiterOf(r *bufio.Reader) rune {
	head, _ := r.Peek(r.Size()) // a shorter input is peeked as a whole
	line, _, _ := strings.Cut(string(head), "\n")
	if strings.Contains(line, ",") {
		return ','
	}
	for _, c := range ";\t|" {
		if strings.ContainsRune(line, c) {
			return c
		}
	}
	return ','
}

// selectColumns decides which fields become members, under which names and of which types.
func (c *csvReader) selectColumns(types cellTypes) error {
	at := make(map[string]int, len(c.header))
	for i, name := range c.header {
		if first, ok := at[name]; ok {
			return fault.Wrap(
				invalid("give each column a name of its own", "the header names %q in the columns %d and %d",
					name, first+1, i+1),
				"line 1",
			)
		}
		if !utf8.ValidString(name) {
			return fault.Wrap(
				invalid("write the file in UTF-8", "column %d of the header is not valid UTF-8", i+1),
				"line 1",
			)
		}
		at[name] = i
	}
	var err error
	if c.names, err = c.selected.names(c.header); err != nil {
		return err
	}
	c.types, err = types.of(c.names)
	for i, name := range c.names {
		field := i
		if c.selected != nil {
			field = at[c.selected[i].from]
		}
		c.order = append(c.order, field)
		c.raw = append(c.raw, append(jsonl.AppendString(nil, name), ':'))
	}
	return err
}

// maxFields is the most fields of a CSV row: the reader takes 40 bytes for each, besides its text.
const maxFields = 256 << 10

// fewFields passes on CSV that has at most maxFields fields in a row.
type fewFields struct {
	r      io.Reader
	comma  byte // each delimiter is one
	quoted bool // inside quotes
	commas int  // of the row
}

func (f *fewFields) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	for _, c := range p[:n] {
		switch {
		case c == '"':
			f.quoted = !f.quoted // a quote in quotes is written twice
		case f.quoted:
		case c == '\n':
			f.commas = 0
		case c == f.comma:
			f.commas++
		}
		if f.commas >= maxFields {
			return 0, invalid("write its data as rows, or as one field of JSON",
				"one CSV row has more than %d fields", maxFields)
		}
	}
	return n, err
}

func (c *csvReader) columns() []string { return c.names }

func (c *csvReader) close() error { return c.src.Close() }

func (c *csvReader) place() string { return fmt.Sprintf("line %d", c.line) }

// next implements reader.
func (c *csvReader) next() ([]byte, error) {
	c.limit.begin()
	fields, err := c.rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, c.failed(err)
	}
	c.line, _ = c.rows.FieldPos(0)
	if err := c.checkLength(fields); err != nil {
		return nil, err
	}
	c.out = append(c.out[:0], '{')
	for i, field := range c.order {
		if field >= len(fields) {
			continue
		}
		if len(c.out) > 1 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.raw[i]...)
		if c.out, err = c.types[i].appendCell(c.out, fields[field]); err != nil {
			line, col := c.rows.FieldPos(field)
			return nil, fault.Wrap(err, "line %d, character %d, column %s", line, col, c.header[field])
		}
	}
	c.out = append(c.out, '}')
	return c.out, nil
}

// checkLength compares a row with the header.
func (c *csvReader) checkLength(fields []string) error {
	if len(fields) < len(c.header) {
		c.short++
		return nil
	}
	for i, extra := range fields[len(c.header):] {
		if extra != "" {
			line, col := c.rows.FieldPos(len(c.header) + i)
			return fault.Wrap(invalid(
				"put a field with the delimiter in it into quotes, or correct the header",
				"the row has %d fields, the header has %d",
				len(fields),
				len(c.header),
			), "line %d, character %d", line, col)
		}
	}
	return nil
}

// failed returns the error of the library, with line and column.
func (c *csvReader) failed(err error) error {
	var parse *csv.ParseError
	if !errors.As(err, &parse) {
		if fault.KindOf(err) == fault.Internal { // an error of the operating system
			err = fault.WithKind(fault.Unavailable, err, "read the input")
		}
		return fault.Wrap(err, "after line %d", c.line)
	}
	remedy := "correct it there; if the fields are separated otherwise, use --from tsv"
	if errors.Is(parse.Err, csv.ErrQuote) || errors.Is(parse.Err, csv.ErrBareQuote) {
		remedy = `put the field into quotes, and write a quote in it twice ("")`
	}
	if fault.KindOf(parse.Err) != fault.Internal {
		return fault.Wrap(parse.Err, "the row that begins in line %d", parse.StartLine)
	}
	return fault.Wrap(
		invalid(remedy, "not valid CSV: %v", parse.Err),
		"line %d, character %d",
		parse.Line,
		parse.Column,
	)
}
