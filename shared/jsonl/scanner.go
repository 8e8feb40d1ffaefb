package jsonl

import (
	"bytes"
	"errors"
	"io"
)

// MaxLine is the default of Options.MaxLine in bytes: 16 MiB.
const MaxLine = 16 << 20

// MaxHead is how many bytes of a line over the limit are kept.
const MaxHead = 64 << 10

// firstBuffer is the initial size of a Scanner's buffer.
const firstBuffer = 64 << 10

// bom is the UTF-8 byte order mark.
const bom = "\xEF\xBB\xBF"

// slack is how many bytes a line may have besides its content: a BOM, CR and LF.
const slack = len(bom) + 2

// maxEmptyReads is how many reads in a row may return no bytes and no error.
const maxEmptyReads = 100

// Line is one line of a file. Its slices are valid until the next call of Next.
type Line struct {
	// Bytes is the content of the line, without BOM, CR and LF. It is nil if TooLong.
	Bytes []byte
	// Raw is the whole line, Length bytes. It is nil if TooLong.
	Raw []byte
	// Offset is the absolute offset of the first byte of the line. At offset 0 that may
	// be a byte of a BOM.
	Offset int64
	// Length is the number of bytes of the line, BOM and line ending included.
	Length int64
	// Number is the number of the line among those of this scanner, from 1.
	Number uint64
	// Blank is true for a line of only spaces, tabs and CRs.
	Blank bool
	// TooLong is true for a line with more content than MaxLine, which was skipped.
	TooLong bool
	// Head is the beginning of a line that is TooLong, at most MaxHead bytes; nil for
	// other lines.
	Head []byte
}

// Options select the part of a file that a Scanner reads.
type Options struct {
	// Offset is the absolute offset of the reader's first byte.
	Offset int64
	// Limit ends the scan: lines whose first byte is at or after it belong to the next
	// range. 0: no limit.
	Limit int64
	// SkipPartial skips everything up to the first LF. A line belongs to the range with
	// its first byte, so a range that starts at s > 0 is read from s-1 with SkipPartial.
	SkipPartial bool
	// MaxLine is the longest content of a line in bytes; 0: 16 MiB.
	MaxLine int
	// OnLongLine, if not nil, is called with the raw bytes of a too long line, piece by
	// piece, before Next returns that line. It must not keep the slices.
	OnLongLine func(p []byte)
}

// Scanner splits the content of a reader into lines. Its memory is bounded by MaxLine. It
// is not safe for concurrent use.
type Scanner struct {
	r       io.Reader
	o       Options
	buf     []byte
	start   int   // the next line's first byte in buf
	end     int   // the end of the bytes in buf
	offset  int64 // the absolute offset of buf[start]
	number  uint64
	partial bool // the first LF has not been read yet
	err     error
}

// NewScanner returns a Scanner of r.
func NewScanner(r io.Reader, o Options) *Scanner {
	if o.MaxLine <= 0 {
		o.MaxLine = MaxLine
	}
	return &Scanner{r: r, o: o, buf: make([]byte, min(firstBuffer, o.MaxLine+slack)),
		offset: o.Offset, partial: o.SkipPartial}
}

// NewMemoryScanner returns a Scanner of b. The slices of its lines are parts of b, and
// stay valid as long as b does not change.
func NewMemoryScanner(b []byte, o Options) *Scanner {
	if o.MaxLine <= 0 {
		o.MaxLine = MaxLine
	}
	return &Scanner{o: o, buf: b, end: len(b), err: io.EOF, offset: o.Offset, partial: o.SkipPartial}
}

// Next returns the next line, and io.EOF after the last one. It returns an error of the
// reader unchanged, without the line that the error truncated.
func (s *Scanner) Next() (Line, error) {
	if s.partial {
		if err := s.skipPartial(); err != nil {
			return Line{}, err
		}
		s.partial = false
	}
	if s.o.Limit > 0 && s.offset >= s.o.Limit {
		return Line{}, io.EOF
	}
	raw, err := s.line()
	if err != nil {
		return Line{}, err
	}
	if raw == nil {
		return s.skipLong()
	}
	content := trim(raw, s.offset)
	if len(content) > s.o.MaxLine {
		s.spill(raw)
		return s.take(Line{Length: int64(len(raw)), TooLong: true, Head: headOf(content)}), nil
	}
	return s.take(Line{Bytes: content, Raw: raw, Length: int64(len(raw)), Blank: blank(content)}), nil
}

// take numbers a line in the buffer, and moves to the next one.
func (s *Scanner) take(l Line) Line {
	s.number++
	l.Number, l.Offset = s.number, s.offset
	s.offset += l.Length
	s.start += int(l.Length)
	return l
}

// line returns the next line in the buffer, with its LF, which the last line may lack. It
// returns nil if the line is certainly too long.
func (s *Scanner) line() ([]byte, error) {
	for searched := s.start; ; {
		if i := bytes.IndexByte(s.buf[searched:s.end], '\n'); i >= 0 {
			return s.buf[s.start : searched+i+1], nil
		}
		if s.end-s.start > s.o.MaxLine+slack-1 {
			return nil, nil
		}
		before := s.end - s.start
		if err := s.fill(); err != nil {
			if errors.Is(err, io.EOF) && before > 0 {
				return s.buf[s.start:s.end], nil
			}
			return nil, err
		}
		searched = s.start + before
	}
}

// fill reads more bytes into the buffer, which it moves and grows as needed.
func (s *Scanner) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.end == len(s.buf) && s.start > 0 {
		copy(s.buf, s.buf[s.start:s.end])
		s.end -= s.start
		s.start = 0
	}
	if s.end == len(s.buf) {
		grown := make([]byte, min(2*len(s.buf), s.o.MaxLine+slack))
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	for range maxEmptyReads {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.err = io.ErrNoProgress
	return s.err
}

// skipLong skips a line that does not fit, in pieces of one buffer.
func (s *Scanner) skipLong() (Line, error) {
	var length int64
	head := headOf(trim(s.buf[s.start:s.end], s.offset))
	for {
		piece := s.buf[s.start:s.end]
		i := bytes.IndexByte(piece, '\n')
		if i >= 0 {
			piece = piece[:i+1]
		}
		s.spill(piece)
		length += int64(len(piece))
		s.start += len(piece)
		if i >= 0 {
			break
		}
		s.start, s.end = 0, 0
		if err := s.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return Line{}, err
		}
	}
	s.number++
	l := Line{Offset: s.offset, Length: length, Number: s.number, TooLong: true, Head: head}
	s.offset += length
	return l, nil
}

// skipPartial skips the rest of the last line of the previous range. If that line
// reaches the limit, no line starts in this range.
func (s *Scanner) skipPartial() error {
	for {
		if s.start == s.end {
			s.start, s.end = 0, 0
			if err := s.fill(); err != nil {
				return err
			}
		}
		if i := bytes.IndexByte(s.buf[s.start:s.end], '\n'); i >= 0 {
			s.start += i + 1
			s.offset += int64(i) + 1
			return nil
		}
		s.offset += int64(s.end - s.start)
		s.start = s.end
		if s.o.Limit > 0 && s.offset >= s.o.Limit {
			return io.EOF
		}
	}
}

// spill passes a piece of a too long line to OnLongLine.
func (s *Scanner) spill(p []byte) {
	if s.o.OnLongLine != nil && len(p) > 0 {
		s.o.OnLongLine(p)
	}
}

// trim removes the line ending, and a BOM at offset 0.
func trim(raw []byte, offset int64) []byte {
	b := raw
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
		if n > 1 && b[n-2] == '\r' {
			b = b[:n-2]
		}
	}
	if offset == 0 {
		b = bytes.TrimPrefix(b, []byte(bom))
	}
	return b
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// headOf returns a copy of the beginning of a line.
func headOf(content []byte) []byte { return bytes.Clone(content[:min(len(content), MaxHead)]) }
