package progress

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Transfer displays the progress of an upload or a download in bytes. It displays nothing unless the output is a
// terminal. A nil *Transfer is valid and displays nothing.
type Transfer struct {
	container *mpb.Progress
	line      *mpb.Bar
}

// NewTransfer displays a bar on w for a transfer of total bytes. Close ends it.
func NewTransfer(w io.Writer, name string, total int64) *Transfer {
	if !SupportsBars(w) {
		return nil
	}
	t := &Transfer{container: newContainer(w)}
	t.line = t.container.AddBar(total,
		mpb.PrependDecorators(decor.Name(SanitizeLine(name, nameColumns)+" ")),
		mpb.AppendDecorators(
			decor.CountersKibiByte(" % .1f / % .1f"),
			decor.AverageSpeed(decor.SizeB1024(0), " % .1f"),
			decor.OnComplete(decor.Name(" ETA "), ""),
			decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), ""),
		),
	)
	return t
}

// Close ends the display. The last state stays visible.
func (t *Transfer) Close() {
	if t == nil {
		return
	}
	t.line.Abort(false) // has no effect on a full bar
	t.container.Wait()
}

// Add counts n bytes.
func (t *Transfer) Add(n int) {
	if t != nil {
		t.line.IncrBy(n)
	}
}

// Reader returns a reader that counts the bytes that are read from r.
func (t *Transfer) Reader(r io.Reader) io.Reader {
	if t == nil {
		return r
	}
	return countingReader{r, t}
}

type countingReader struct {
	io.Reader
	transfer *Transfer
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.transfer.line.IncrBy(n)
	return n, err
}

// Writer returns a writer that counts the bytes that are written to w.
func (t *Transfer) Writer(w io.Writer) io.Writer {
	if t == nil {
		return w
	}
	return countingWriter{w, t}
}

type countingWriter struct {
	io.Writer
	transfer *Transfer
}

func (c countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.transfer.line.IncrBy(n)
	return n, err
}
