package convert

import (
	"encoding/csv"
	"io"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// writer writes records.
type writer interface {
	write(record []byte) error
	close() error // writes what is buffered; it does not close what it writes to
}

// lineWriter writes JSON lines.
type lineWriter struct {
	w   io.Writer
	buf []byte
}

func (l *lineWriter) write(record []byte) error {
	l.buf = append(append(l.buf[:0], record...), '\n')
	_, err := l.w.Write(l.buf)
	return unwritten(err)
}

func (l *lineWriter) close() error { return nil }

// csvWriter writes rows under a header. Text is written as it is, null and missing members are empty, all else is JSON.
type csvWriter struct {
	w     io.Writer
	rows  *csv.Writer
	at    map[string]int
	cells []string
}

func newCSVWriter(w io.Writer, comma rune, names []string) (*csvWriter, error) {
	c := &csvWriter{w: w, rows: csv.NewWriter(w), at: map[string]int{}, cells: make([]string, len(names))}
	c.rows.Comma = comma
	for i, name := range names {
		c.at[name] = i
	}
	if len(names) == 0 {
		return c, nil
	}
	return c, c.row(names)
}

func (c *csvWriter) write(record []byte) error {
	clear(c.cells)
	o := jsonl.ReadKnownObject(record)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		i := c.at[string(m.Name)]
		switch m.Value[0] {
		case 'n':
			continue
		case '"':
			cell, err := plainText(m.Value)
			if err != nil {
				return fault.Wrap(err, "column %s", m.Name)
			}
			c.cells[i] = string(cell)
		default:
			c.cells[i] = string(m.Value)
		}
	}
	return c.row(c.cells)
}

// row writes a row. One with nothing but an empty cell gets quotes, because readers skip empty lines.
func (c *csvWriter) row(cells []string) error {
	if len(cells) > 1 || cells[0] != "" {
		return unwritten(c.rows.Write(cells))
	}
	if err := c.close(); err != nil {
		return err
	}
	_, err := io.WriteString(c.w, "\"\"\n")
	return unwritten(err)
}

func (c *csvWriter) close() error {
	c.rows.Flush()
	return unwritten(c.rows.Error())
}

// plainText decodes a JSON string that other formats can hold.
func plainText(raw []byte) ([]byte, error) {
	b, _ := jsonl.Unquote(make([]byte, 0, len(raw)), raw)
	if !utf8.Valid(b) {
		return nil, invalid(
			`correct it, or write JSON lines`,
			"the text has half of a surrogate pair, which only JSON can hold",
		)
	}
	return b, nil
}

// unwritten gives a failed write to the output its kind.
func unwritten(err error) error { return fault.WithKind(fault.Unavailable, err, "write the output") }
