package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// settableClock is a clock that the test sets.
type settableClock struct{ now time.Time }

func (c *settableClock) Now() time.Time { return c.now }

func TestTransferIsDrawnOnceItHasTakenAMoment(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &settableClock{now: time.Unix(1000, 0)}
	transfer := newTransfer(&out, "x.jsonl", 4<<20, c, false)
	transfer.Add(1 << 20)
	if out.Len() > 0 {
		t.Errorf("it is drawn at once: %q", out.String())
	}
	c.now = c.now.Add(time.Second)
	transfer.Add(1 << 20)
	if got := out.String(); !strings.Contains(got, "] 50%  2.0 MiB of 4.0 MiB, 2.0 MiB/s, ETA 1s\n") {
		t.Errorf("after a second: %q", got)
	}
	out.Reset()
	c.now = c.now.Add(50 * time.Millisecond)
	transfer.Add(1 << 20)
	if out.Len() > 0 {
		t.Errorf("it is drawn again too soon: %q", out.String())
	}
	c.now = c.now.Add(950 * time.Millisecond)
	transfer.Add(1 << 20)
	transfer.Close()
	if got := out.String(); !strings.HasSuffix(got, "] 100%  4.0 MiB of 4.0 MiB, 2.0 MiB/s\n\x1b[J") {
		t.Errorf("at its end: %q", got)
	}
}

func TestShortTransferIsNotDrawn(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	transfer := newTransfer(&out, "x.jsonl", 100, &settableClock{now: time.Unix(1000, 0)}, false)
	transfer.Add(100)
	transfer.Close()
	if out.Len() > 0 {
		t.Errorf("it is drawn: %q", out.String())
	}
}
