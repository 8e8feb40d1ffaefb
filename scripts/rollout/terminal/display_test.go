package terminal

import (
	"strings"
	"testing"
)

func TestDisplayKeepsLogLinesAboveWhatItDraws(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	d := NewDisplay(&b)
	log, other := d.Writer(), d.Writer()
	for _, step := range []func(){
		func() { _ = d.Draw([]string{"one", "two"}) },
		func() { _, _ = log.Write([]byte("log ")) }, // has no end yet
		func() { _, _ = other.Write([]byte("other\n")) },
		func() { _, _ = log.Write([]byte("line\n")) },
		func() { _ = d.Draw([]string{"three"}) },
		d.Close,
		func() { _, _ = log.Write([]byte("later\n")) },
	} {
		step()
	}
	const want = "\r" + "\x1b[Kone\n" + "\x1b[Ktwo\n" + "\x1b[J" +
		"\r\x1b[2A\x1b[J" + "other\n" + "\x1b[Kone\n" + "\x1b[Ktwo\n" + "\x1b[J" +
		"\r\x1b[2A\x1b[J" + "log line\n" + "\x1b[Kone\n" + "\x1b[Ktwo\n" + "\x1b[J" +
		"\r\x1b[2A" + "\x1b[Kthree\n" + "\x1b[J" +
		"\r\x1b[1A" + "\x1b[Kthree\n" + "\x1b[J" + // over a ^C
		"\r\x1b[J" + "later\n" + "\x1b[J"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestProgressPrintsAboveTheTask(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	p := NewProgress(&b, false)
	p.Show(Task{Name: "x"})
	p.Print("a note")
	p.Close()
	const want = "\r\x1b[Kx\n\x1b[J" + "\r\x1b[1A\x1b[Ja note\n\x1b[Kx\n\x1b[J" + "\r\x1b[1A\x1b[Kx\n\x1b[J"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
