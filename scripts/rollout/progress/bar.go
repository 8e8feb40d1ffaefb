package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// SupportsBars reports whether w is a terminal that can draw a Bar: one that supports ANSI sequences and has a known
// width.
func SupportsBars(w io.Writer) bool {
	_, _, ok := TerminalSize(w)
	return ok && SupportsANSI(w)
}

const (
	nameColumns = 24 // maximum width of a name next to a bar
	barColumns  = 40 // maximum width of a bar
	redraw      = 200 * time.Millisecond
)

// newContainer returns an mpb container that draws bars on w.
func newContainer(w io.Writer) *mpb.Progress {
	return mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(barColumns), mpb.WithRefreshRate(redraw))
}

// Bar draws the progress of a task on a terminal, with a text before and a text after the bar. End it with Close.
type Bar struct {
	container *mpb.Progress
	line      *mpb.Bar
}

// NewBar draws a bar on w. A goroutine calls before and after whenever it draws the bar, so they must lock what they
// read.
func NewBar(w io.Writer, before, after func() string) *Bar {
	b := &Bar{container: newContainer(w)}
	text := func(f func() string) decor.Decorator {
		return decor.Any(func(decor.Statistics) string { return f() }, decor.WC{C: decor.DextraSpace})
	}
	b.line = b.container.AddBar(0, mpb.PrependDecorators(text(before)),
		mpb.AppendDecorators(text(func() string { return " " + after() })))
	return b
}

// Set moves the bar to done of total. If complete, the bar becomes full and is not drawn again.
func (b *Bar) Set(done, total uint64, complete bool) {
	// mpb stops drawing a bar that is full, so its total is one too high until the task is complete.
	b.line.SetTotal(int64(max(total, done))+1, false)
	b.line.SetCurrent(int64(done))
	if complete {
		b.line.SetTotal(int64(max(1, done)), true)
	}
}

// Print prints a line above the bar.
func (b *Bar) Print(text string) {
	_, _ = fmt.Fprintln(b.container, text) // fails only if the terminal is gone
}

// Close ends the bar. What it drew last stays visible.
func (b *Bar) Close() {
	b.line.Abort(false) // has no effect on a full bar
	b.container.Wait()
}
