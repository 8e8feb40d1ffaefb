package shardtable

import (
	"bufio"
	"io"

	"rollout/shared/fault"
)

// Writer streams a cut table. It is not safe for concurrent use.
type Writer struct {
	w    *bufio.Writer
	last Row
	rows int64
	buf  []byte
}

// NewWriter starts a cut table with its header. Errors of w are returned by
// Append and Flush.
func NewWriter(w io.Writer, h Header) *Writer {
	b := &Writer{w: bufio.NewWriterSize(w, 32<<10)}
	b.buf = h.Append(nil)
	b.w.Write(b.buf) // the error is kept and returned by Flush
	return b
}

// Append writes the next row.
func (w *Writer) Append(r Row) error {
	if err := r.check(); err != nil {
		return err
	}
	if w.rows > 0 && !r.follows(w.last) {
		return corrupt("row %d does not continue the row before it", w.rows)
	}
	w.buf = r.Append(w.buf[:0])
	if _, err := w.w.Write(w.buf); err != nil {
		return fault.Wrap(err, "write row %d of a cut table", w.rows)
	}
	w.last = r
	w.rows++
	return nil
}

// Rows is the number of rows written.
func (w *Writer) Rows() int64 { return w.rows }

// Flush hands everything written to the underlying writer.
func (w *Writer) Flush() error { return fault.Wrap(w.w.Flush(), "write a cut table") }
