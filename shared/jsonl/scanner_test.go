package jsonl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"rollout/shared/jsonl"
)

// show returns the contents of lines, with "-" for blank and "!" for too long ones.
func show(lines []jsonl.Line) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('|')
		}
		switch {
		case l.TooLong:
			fmt.Fprintf(&b, "!%d+%d", l.Offset, l.Length)
		case l.Blank:
			b.WriteByte('-')
		default:
			b.Write(l.Bytes)
		}
	}
	return b.String()
}

// scan returns all lines with copies of their slices.
func scan(t interface{ Fatalf(string, ...any) }, r io.Reader, o jsonl.Options) []jsonl.Line {
	s := jsonl.NewScanner(r, o)
	var lines []jsonl.Line
	for {
		l, err := s.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		l.Bytes, l.Raw = bytes.Clone(l.Bytes), bytes.Clone(l.Raw)
		lines = append(lines, l)
	}
}

func TestScannerSplitsLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, want string }{
		{"empty file", "", ""},
		{"one line", "a\n", "a"},
		{"C07 no final newline", "a\nb", "a|b"},
		{"C07 blank lines at the end", "a\n\n", "a|-"},
		{"C07 blank lines at the start", "\n\na", "-|-|a"},
		{"C07 CRLF only", "\r\n\r\n", "-|-"},
		{"C10 only newlines", "\n\n\n", "-|-|-"},
		{"CRLF", "a\r\nb\r\n", "a|b"},
		{"CR alone ends no line", "a\rb\n", "a\rb"},
		{"only one CR is dropped", "a\r\r\n", "a\r"},
		{"white space is blank", " \t\r\n", "-"},
		{"C01 one BOM is dropped", "\xEF\xBB\xBFa\nb\n", "a|b"},
		{"C01 only one BOM, only at the start", "\xEF\xBB\xBF\xEF\xBB\xBFa\n\xEF\xBB\xBFb", "\xEF\xBB\xBFa|\xEF\xBB\xBFb"},
		{"a BOM alone is a blank line", "\xEF\xBB\xBF", "-"},
		{"C03 U+2028, U+2029, U+0085, VT and FF do not end a line",
			"a\u2028b\u2029c\u0085d\ve\f\nf", "a\u2028b\u2029c\u0085d\ve\f|f"},
		{"NUL is a byte like others", "a\x00b\n\x00", "a\x00b|\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := show(scan(t, strings.NewReader(c.file), jsonl.Options{})); got != c.want {
				t.Errorf("lines of %q: %q, want %q", c.file, got, c.want)
			}
			got := show(scan(t, iotest.OneByteReader(strings.NewReader(c.file)), jsonl.Options{}))
			if got != c.want {
				t.Errorf("byte by byte, lines of %q: %q, want %q", c.file, got, c.want)
			}
		})
	}
}

func TestLinesHaveOffsetLengthAndNumber(t *testing.T) {
	t.Parallel()
	lines := scan(t, strings.NewReader("\xEF\xBB\xBFa\r\n\nbc"), jsonl.Options{})
	want := []struct {
		raw    string
		offset int64
		number uint64
	}{{"\xEF\xBB\xBFa\r\n", 0, 1}, {"\n", 6, 2}, {"bc", 7, 3}}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	for i, w := range want {
		l := lines[i]
		if string(l.Raw) != w.raw || l.Offset != w.offset || l.Length != int64(len(w.raw)) || l.Number != w.number {
			t.Errorf("line %d: %q at %d, %d bytes, number %d; want %+v", i, l.Raw, l.Offset, l.Length, l.Number, w)
		}
	}
}

func TestC04LinesUpToTheLimitAreRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	vast := strings.Repeat("y", 15<<20)
	limit := strings.Repeat("z", jsonl.MaxLine)
	over := limit + "z"
	file := "a\n" + long + "\n" + vast + "\r\n" + limit + "\r\n" + over + "\nb\n"
	lines := scan(t, strings.NewReader(file), jsonl.Options{})
	if len(lines) != 6 {
		t.Fatalf("%d lines, want 6", len(lines))
	}
	for i, want := range []string{"a", long, vast, limit, "", "b"} {
		if tooLong := i == 4; lines[i].TooLong != tooLong || string(lines[i].Bytes) != want {
			t.Errorf("line %d: %d bytes, too long %v; want %d bytes", i, len(lines[i].Bytes), lines[i].TooLong, len(want))
		}
	}
	if head := lines[4].Head; string(head) != over[:jsonl.MaxHead] || lines[0].Head != nil {
		t.Errorf("the head of the long line has %d bytes", len(head))
	}
	if l := lines[4]; l.Length != jsonl.MaxLine+2 || l.Offset != lines[3].Offset+lines[3].Length {
		t.Errorf("the long line is %d+%d", l.Offset, l.Length)
	}
}

// TestLongLinesAreNotBuffered scans a line of 64 MiB.
func TestLongLinesAreNotBuffered(t *testing.T) {
	t.Parallel()
	var spilled, largest int
	s := jsonl.NewScanner(io.MultiReader(io.LimitReader(zeros{}, 64<<20), strings.NewReader("\nb")),
		jsonl.Options{MaxLine: 1 << 20, OnLongLine: func(p []byte) { spilled += len(p); largest = max(largest, len(p)) }})
	l, err := s.Next()
	if err != nil || !l.TooLong || l.Length != 64<<20+1 || l.Bytes != nil {
		t.Fatalf("%+v, %v", l, err)
	}
	if spilled != 64<<20+1 || largest > 1<<20+5 {
		t.Errorf("spilled %d bytes, up to %d at once", spilled, largest)
	}
	if l, err = s.Next(); err != nil || string(l.Bytes) != "b" || l.Number != 2 || l.Offset != 64<<20+1 {
		t.Errorf("the next line: %+v, %v", l, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestReadErrorsAreReturned(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	s := jsonl.NewScanner(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), jsonl.Options{})
	if l, err := s.Next(); err != nil || string(l.Bytes) != "a" {
		t.Fatalf("%q, %v", l.Bytes, err)
	}
	for range 2 {
		if _, err := s.Next(); !errors.Is(err, broken) {
			t.Errorf("got %v, want the reader's error", err)
		}
	}
	s = jsonl.NewScanner(idle{}, jsonl.Options{})
	if _, err := s.Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader without bytes: %v", err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// file draws a file of short lines of all kinds.
func file(t *rapid.T) string {
	piece := rapid.SampledFrom([]string{"a", "bc", "\n", "\n", "\r\n", "\r", " ", "0123456789abcdef",
		"\xEF\xBB\xBF", "\u2028"})
	return strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(t, "file"), "")
}

func TestRangesHaveTheLinesOfTheWholeFile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := file(t)
		limit := rapid.IntRange(1, 12).Draw(t, "max line")
		whole := scan(t, strings.NewReader(f), jsonl.Options{MaxLine: limit})
		var parts []jsonl.Line
		for start := 0; start < len(f); {
			end := start + rapid.IntRange(1, len(f)).Draw(t, "range")
			o := jsonl.Options{Offset: int64(start), Limit: int64(end), MaxLine: limit}
			if start > 0 {
				o.Offset, o.SkipPartial = int64(start-1), true
			}
			parts = append(parts, scan(t, strings.NewReader(f[o.Offset:]), o)...)
			start = end
		}
		if len(parts) != len(whole) {
			t.Fatalf("%d lines in ranges, %d in the whole file", len(parts), len(whole))
		}
		for i, p := range parts {
			w := whole[i]
			if p.Offset != w.Offset || p.Length != w.Length || p.TooLong != w.TooLong || p.Blank != w.Blank ||
				!bytes.Equal(p.Bytes, w.Bytes) {
				t.Fatalf("line %d: %+v in ranges, %+v in the whole file", i, p, w)
			}
		}
	})
}

func TestLinesTileTheFile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := file(t)
		limit := rapid.IntRange(1, 12).Draw(t, "max line")
		var all, spilled bytes.Buffer
		o := jsonl.Options{MaxLine: limit, OnLongLine: func(p []byte) { spilled.Write(p) }}
		s := jsonl.NewScanner(iotest.HalfReader(strings.NewReader(f)), o)
		for {
			l, err := s.Next()
			if err != nil {
				break
			}
			if l.TooLong != (spilled.Len() > 0) || l.Offset != int64(all.Len()) {
				t.Fatalf("%+v after %d bytes, %d spilled", l, all.Len(), spilled.Len())
			}
			if whole := spilled.Bytes(); l.TooLong && !bytes.Contains(whole[:min(len(whole), len(l.Head)+3)], l.Head) {
				t.Fatalf("the head of %.40q is %.40q", whole, l.Head)
			}
			all.Write(spilled.Bytes())
			all.Write(l.Raw)
			spilled.Reset()
			content, ended := strings.CutSuffix(f[l.Offset:l.Offset+l.Length], "\n")
			if ended {
				content = strings.TrimSuffix(content, "\r")
			}
			if l.TooLong && len(content) <= limit {
				t.Fatalf("a line of %d bytes is too long for %d", len(content), limit)
			}
		}
		if all.String() != f {
			t.Fatalf("the lines are %q, the file is %q", all.String(), f)
		}
	})
}

func TestMemoryScannerHasTheLinesOfAReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := file(t)
		o := jsonl.Options{
			MaxLine:     rapid.IntRange(1, 12).Draw(t, "max line"),
			SkipPartial: rapid.Bool().Draw(t, "partial"),
			Limit:       int64(rapid.IntRange(0, 20).Draw(t, "limit")),
		}
		s := jsonl.NewMemoryScanner([]byte(f), o)
		var lines []jsonl.Line // never copied
		for l, err := s.Next(); err == nil; l, err = s.Next() {
			lines = append(lines, l)
		}
		if got, want := show(lines), show(scan(t, strings.NewReader(f), o)); got != want {
			t.Fatalf("%q from memory, %q from a reader", got, want)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	line := append(bytes.Repeat([]byte("x"), 1179), '\n')
	data := bytes.Repeat(line, 1<<14)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		s := jsonl.NewScanner(bytes.NewReader(data), jsonl.Options{})
		for {
			if _, err := s.Next(); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N<<14), "ns/line")
}
