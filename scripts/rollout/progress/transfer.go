package progress

import (
	"io"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"rollout/scripts/rollout/terminal"
	"rollout/shared/clock"
)

// Transfer displays the progress of an upload or a download in bytes, from the time on when it has taken a moment. It
// displays nothing unless the output is a terminal. A nil *Transfer is valid and displays nothing. It is safe for
// concurrent use.
type Transfer struct {
	bar   *terminal.Progress
	name  string
	clock clock.Clock

	mu          sync.Mutex
	done, total int64
	began, next time.Time // when it began, and when it is drawn next
	drawn       bool
}

const (
	transferMoment = 300 * time.Millisecond // before the first drawing
	redrawEvery    = 100 * time.Millisecond
)

// NewTransfer displays a bar on w for a transfer of total bytes. Close ends it.
func NewTransfer(w io.Writer, name string, total int64, c clock.Clock, colours terminal.Palette) *Transfer {
	if !terminal.SupportsDrawing(w) {
		return nil
	}
	return newTransfer(w, name, total, c, colours)
}

func newTransfer(w io.Writer, name string, total int64, c clock.Clock, colours terminal.Palette) *Transfer {
	now := c.Now()
	return &Transfer{bar: terminal.NewProgress(w, colours), name: SanitizeLine(name, nameColumns), clock: c, total: total,
		began: now, next: now.Add(transferMoment)}
}

// Close ends the display. The last state stays visible.
func (t *Transfer) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drawn {
		t.bar.Show(t.task(t.clock.Now()))
	}
	t.bar.Close()
}

// Add counts n bytes.
func (t *Transfer) Add(n int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += int64(n)
	if now := t.clock.Now(); !now.Before(t.next) {
		t.drawn, t.next = true, now.Add(redrawEvery)
		t.bar.Show(t.task(now))
	}
}

// task returns what the bar tells at the time now.
func (t *Transfer) task(now time.Time) terminal.Task {
	done, total := uint64(max(0, t.done)), uint64(max(0, t.total))
	b := terminal.Task{Name: t.name, Done: done, All: total,
		Facts: []string{humanize.IBytes(done) + " of " + humanize.IBytes(total)}}
	spent := now.Sub(t.began).Seconds()
	if spent <= 0 || done == 0 {
		return b
	}
	rate := float64(done) / spent
	b.Facts = append(b.Facts, humanize.IBytes(uint64(rate))+"/s")
	if done < total {
		left := float64(total-done) / rate
		b.Facts = append(b.Facts, "ETA "+FormatETA(&left))
	}
	return b
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
	c.transfer.Add(n)
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
	c.transfer.Add(n)
	return n, err
}
