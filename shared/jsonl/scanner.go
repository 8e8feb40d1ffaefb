package jsonl

import (
	"bytes"
	"errors"
	"io"
)

// MaxLine is the longest line, in bytes, that is read: 16 MiB, without its
// line ending.
const MaxLine = 16 << 20

// firstBuffer is the size a Scanner's buffer starts with.
const firstBuffer = 64 << 10

// bom is the UTF-8 byte order mark.
const bom = "\xEF\xBB\xBF"

// slack is what a line may hold beside its content: a BOM, CR and LF.
const slack = len(bom) + 2

// maxEmptyReads is how many reads of no bytes and no error are borne in a row.
const maxEmptyReads = 100

// Line is one line of a file. Its slices are valid until the next call of
// Next.
type Line struct {
	// Bytes is the line's content: without BOM, CR and LF. Nil if TooLong.
	Bytes []byte
	// Raw is the whole line, as Length counts it. Nil if TooLong.
	Raw []byte
	// Offset is the absolute offset of the line's first byte; at offset 0 that
	// may be a BOM's.
	Offset int64
	// Length counts all of the line's bytes, BOM and line ending included.
	Length int64
	// Number counts the lines that this scanner returned, from 1.
	Number uint64
	// Blank lines hold only spaces, tabs and CRs. They are no items.
	Blank bool
	// TooLong lines have more content than MaxLine; it was skipped.
	TooLong bool
}

// Options says which part of a file a Scanner sees.
type Options struct {
	// Offset is the absolute offset of the reader's first byte.
	Offset int64
	// Limit ends the scan: lines whose first byte is at or after it belong to
	// the next range. 0 is none.
	Limit int64
	// SkipPartial drops everything up to the first LF. A range that starts at
	// s > 0 is read from s-1 with it: a line belongs to the range that holds
	// its first byte.
	SkipPartial bool
	// MaxLine is the longest line's content in bytes; 0 is 16 MiB.
	MaxLine int
	// OnLongLine, if not nil, is given the raw bytes of a line that is too long,
	// piece by piece, before Next returns that line. It must not keep them.
	OnLongLine func(p []byte)
}

// Scanner cuts a reader into lines. Its memory is bounded by MaxLine. It is
// not safe for concurrent use.
type Scanner struct {
	r       io.Reader
	o       Options
	buf     []byte
	start   int   // the next line's first byte in buf
	end     int   // the end of the bytes in buf
	offset  int64 // the absolute offset of buf[start]
	number  uint64
	partial bool // still before the first LF
	err     error
}

// NewScanner returns a Scanner of r.
func NewScanner(r io.Reader, o Options) *Scanner {
	if o.MaxLine <= 0 {
		o.MaxLine = MaxLine
	}
	return &Scanner{r: r, o: o, buf: make([]byte, min(firstBuffer, o.MaxLine+slack)), offset: o.Offset, partial: o.SkipPartial}
}

// NewMemoryScanner returns a Scanner of b. The slices of its lines are b's, and
// valid as long as b does not change.
func NewMemoryScanner(b []byte, o Options) *Scanner {
	if o.MaxLine <= 0 {
		o.MaxLine = MaxLine
	}
	return &Scanner{o: o, buf: b, end: len(b), err: io.EOF, offset: o.Offset, partial: o.SkipPartial}
}

// Next returns the next line; io.EOF after the last one. An error of the
// reader is returned as it is, and the line it cut off is not.
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
		return s.take(Line{Length: int64(len(raw)), TooLong: true}), nil
	}
	return s.take(Line{Bytes: content, Raw: raw, Length: int64(len(raw)), Blank: blank(content)}), nil
}

// take numbers a line that is in the buffer and moves behind it.
func (s *Scanner) take(l Line) Line {
	s.number++
	l.Number, l.Offset = s.number, s.offset
	s.offset += l.Length
	s.start += int(l.Length)
	return l
}

// line returns the next line with its LF (the last one may lack it), still in
// the buffer; nil if it certainly is too long.
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

// fill reads more bytes behind those in the buffer, which it moves and grows
// as needed.
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

// skipLong passes over a line that does not fit, in pieces of one buffer.
func (s *Scanner) skipLong() (Line, error) {
	var length int64
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
	l := Line{Offset: s.offset, Length: length, Number: s.number, TooLong: true}
	s.offset += length
	return l, nil
}

// skipPartial passes over the end of the previous range's last line. If that
// line reaches the limit, no line starts in this range.
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

func (s *Scanner) spill(p []byte) {
	if s.o.OnLongLine != nil && len(p) > 0 {
		s.o.OnLongLine(p)
	}
}

// trim drops the line ending, and a BOM at offset 0.
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
