package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// jsonReader reads objects, and the objects of arrays, that follow one another with white space between them or
// without: JSON lines, one array, or pretty-printed objects.
type jsonReader struct {
	src         io.Closer
	limit       *bounded
	lines       *lineFeeds
	decoder     *jsontext.Decoder
	selected    columns
	value       []byte // the last record as it was written
	record, out []byte // scratch
}

func newJSONReader(src io.ReadCloser, cs columns) *jsonReader {
	limit := &bounded{r: src, what: "one JSON value",
		hint: "if the records are in a member of it, take them out of it first, for example with jq -c '.MEMBER[]'"}
	lines := &lineFeeds{r: limit}
	return &jsonReader{src: src, limit: limit, lines: lines, selected: cs}
}

func (j *jsonReader) columns() []string { return nil }

func (j *jsonReader) close() error { return j.src.Close() }

// place names the line on which the last record begins.
func (j *jsonReader) place() string { return fmt.Sprintf("line %d", j.line(0)-feeds(j.value)) }

// begin skips a byte order mark, and starts the decoder.
func (j *jsonReader) begin() error {
	j.limit.begin()
	head := make([]byte, 3)
	n, err := io.ReadFull(j.lines, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = bytes.TrimPrefix(head[:n], []byte("\xEF\xBB\xBF"))
	j.decoder = jsontext.NewDecoder(io.MultiReader(bytes.NewReader(head), j.lines),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return nil
}

// next implements reader.
func (j *jsonReader) next() ([]byte, error) {
	if j.decoder == nil {
		if err := j.begin(); err != nil {
			return nil, err
		}
	}
	j.limit.begin()
	for {
		kind := j.decoder.PeekKind()
		switch inArray := j.decoder.StackDepth() > 0; {
		case kind == jsontext.KindBeginArray && !inArray, kind == jsontext.KindEndArray && inArray:
			if _, err := j.decoder.ReadToken(); err != nil {
				return nil, j.failed(err)
			}
			continue
		}
		value, err := j.decoder.ReadValue()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if err != nil {
			return nil, j.failed(err)
		}
		j.value = value
		if kind != jsontext.KindBeginObject {
			return nil, at(
				j,
				invalid(`write objects, such as {"prompt": "…"}`, "%s is not an object", describe(value)),
			)
		}
		if !utf8.Valid(value) {
			return nil, at(j, invalid("write the file in UTF-8", "the value is not valid UTF-8"))
		}
		j.record = jsonl.Compact(j.record[:0], value)
		if j.selected == nil {
			return j.record, nil
		}
		if err := checkRecord(j.record); err != nil { // before its members are read
			return nil, at(j, err)
		}
		j.out = j.selected.apply(j.out[:0], j.record)
		return j.out, nil
	}
}

// describe shortens a value for an error.
func describe(value []byte) string {
	const most = 40
	if len(value) > most {
		return string(bytes.ToValidUTF8(value[:most], nil)) + "…"
	}
	return string(bytes.ToValidUTF8(value, nil))
}

// failed returns the error of a decoder, with its place.
func (j *jsonReader) failed(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case fault.KindOf(err) != fault.Internal:
		var own *fault.Error
		if errors.As(err, &own) { // without what the decoder says about it
			err = own
		}
		return fault.Wrap(err, "after line %d", j.line(0))
	case !errors.As(err, &syntax): // an error of the operating system
		return fault.WithKind(fault.Unavailable, err, "read the input")
	}
	skip := int(min(max(0, syntax.ByteOffset-j.decoder.InputOffset()), int64(len(j.decoder.UnreadBuffer()))))
	if errors.Is(syntax.Err, io.ErrUnexpectedEOF) {
		rest := j.decoder.UnreadBuffer()
		skip = len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
		return fault.Wrap(
			invalid("the file is cut short: write it again", "the file ends inside the value that begins here"),
			"%s",
			j.position(skip),
		)
	}
	return fault.Wrap(invalid("correct it there", "not valid JSON: %v", syntax.Err), "%s", j.position(skip))
}

// position names the place of a byte that the decoder has not passed, counted from where it is: with its column if that
// is known, else with its offset in the file.
func (j *jsonReader) position(skip int) string {
	before := j.decoder.UnreadBuffer()[:skip]
	line, offset := j.line(skip), j.decoder.InputOffset()+int64(skip)
	switch i := bytes.LastIndexByte(before, '\n'); {
	case i >= 0:
		return fmt.Sprintf("line %d, column %d", line, utf8.RuneCount(before[i+1:])+1)
	case line == 1:
		return fmt.Sprintf("line 1, column %d", offset+1)
	}
	return fmt.Sprintf("line %d, byte %d of the file", line, offset)
}

// line returns the number of the line of a byte that the decoder has not passed, counted from where it is.
func (j *jsonReader) line(skip int) uint64 {
	return 1 + j.lines.n - feeds(j.decoder.UnreadBuffer()[skip:])
}

// lineFeeds counts the line feeds that were read.
type lineFeeds struct {
	r io.Reader
	n uint64
}

func (l *lineFeeds) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.n += feeds(p[:n])
	return n, err
}

func feeds(b []byte) uint64 { return uint64(bytes.Count(b, []byte("\n"))) }
