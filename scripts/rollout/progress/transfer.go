package progress

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Transfer shows how many bytes have come through. On anything but a terminal
// it shows nothing: its end says enough. Its methods may be called on nil.
type Transfer struct {
	container *mpb.Progress
	line      *mpb.Bar
}

// NewTransfer begins to show on w what is on its way, of that many bytes.
func NewTransfer(w io.Writer, what string, total int64) *Transfer {
	if !takesBars(w) {
		return nil
	}
	t := &Transfer{container: mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(barColumns), mpb.WithRefreshRate(redraw))}
	t.line = t.container.AddBar(total,
		mpb.PrependDecorators(decor.Name(SanitizeLine(what, nameColumns)+" ")),
		mpb.AppendDecorators(
			decor.CountersKibiByte(" % .1f / % .1f"),
			decor.AverageSpeed(decor.SizeB1024(0), " % .1f"),
			decor.OnComplete(decor.Name(" ETA "), ""),
			decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), ""),
		),
	)
	return t
}

// Reader counts what is read of r.
func (t *Transfer) Reader(r io.Reader) io.Reader {
	if t == nil {
		return r
	}
	return counted{r, t}
}

// Close ends it; what it shows last stays.
func (t *Transfer) Close() {
	if t == nil {
		return
	}
	t.line.Abort(false) // nothing to a bar that is full
	t.container.Wait()
}

type counted struct {
	io.Reader
	transfer *Transfer
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.transfer.line.IncrBy(n)
	return n, err
}

// Writer counts what is written to w.
func (t *Transfer) Writer(w io.Writer) io.Writer {
	if t == nil {
		return w
	}
	return written{w, t}
}

type written struct {
	io.Writer
	transfer *Transfer
}

func (c written) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.transfer.line.IncrBy(n)
	return n, err
}
