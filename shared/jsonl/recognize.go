package jsonl

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/text"
)

// RecognizeLen is how many bytes of a file Recognize needs to tell other formats from JSON lines.
const RecognizeLen = 64 << 10

// Recognize returns Invalid if a file, whose first bytes are head, is of another format than JSON lines: what Sniff
// rejects, Parquet, a JSON array, pretty-printed JSON, or CSV. The error says how to convert the file of that name.
// whole says that head is the whole file. JSON lines of which some are not valid pass, as do files of no format.
func Recognize(name string, head []byte, whole bool) error {
	switch {
	case bytes.HasPrefix(head, []byte("PAR1")):
		return convertible(name, "Parquet", "parquet")
	case Sniff(head) != nil:
		return Sniff(head)
	}
	h := newHead(head, whole)
	switch {
	case len(h.lines) == 0 || !utf8.Valid(h.text[:h.lastRune()]):
	case h.text[0] == '[' && h.isArray():
		return convertible(name, "a JSON array", "json")
	case h.text[0] == '{' && h.isPretty():
		return convertible(name, "pretty-printed JSON", "json")
	case h.isCSV():
		return convertible(name, "CSV", "csv")
	}
	return nil
}

func convertible(name, what, from string) error {
	return &fault.Error{Kind: fault.Invalid, Remedy: "convert it with " + ConvertCommand(name, from),
		Err: fault.New(fault.Invalid, "the file is %s, not JSON lines", what)}
}

// ConvertCommand returns the command that makes JSON lines of the file of that name, in which a path or key may stand
// before the name. from is its format, or "" if the name says it.
func ConvertCommand(name, from string) string {
	base := path.Base(name)
	stem := base
	for _, ext := range []string{".gz", ".zst"} {
		stem = strings.TrimSuffix(stem, ext)
	}
	ext := path.Ext(stem)
	target := strings.TrimSuffix(stem, ext) + ".jsonl"
	if ext == ".jsonl" {
		target = strings.TrimSuffix(stem, ext) + "-lines.jsonl"
	}
	if from != "" && "."+from != ext {
		from = " --from " + from
	} else {
		from = ""
	}
	return "`rollout convert" + from + " " + text.ShellPath(base) + " " + text.ShellPath(target) + "`"
}

// fileHead is the beginning of a file.
type fileHead struct {
	text    []byte // from the first character on
	whole   bool
	lines   [][]byte // complete lines that are not blank
	objects int      // lines that are objects
}

func newHead(head []byte, whole bool) fileHead {
	h := fileHead{text: bytes.TrimLeft(bytes.TrimPrefix(head, []byte(bom)), " \t\r\n"), whole: whole}
	for rest := h.text; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		if line = bytes.TrimSpace(line); len(line) == 0 || !ended && !whole {
			continue
		}
		h.lines = append(h.lines, line)
		if line[0] == '{' && Check(line) == nil {
			h.objects++
		}
	}
	if len(h.lines) == 0 && len(h.text) > 0 { // a line longer than the head
		h.lines = [][]byte{h.text}
	}
	return h
}

// lastRune returns the length of the text without a character that is cut at its end.
func (h fileHead) lastRune() int {
	n := len(h.text)
	if h.whole {
		return n
	}
	for i := n - 1; i >= max(0, n-utf8.UTFMax); i-- {
		if utf8.RuneStart(h.text[i]) {
			if !utf8.FullRune(h.text[i:]) {
				return i
			}
			break
		}
	}
	return n
}

// first returns the end of the first value. cut is true if the text ends inside it; ok is false if it is not JSON.
func (h fileHead) first() (end int, cut, ok bool) {
	w := walker{b: h.text}
	end, err := w.value(0, 0)
	switch {
	case err == nil:
		return end, false, true
	case end >= len(h.text), !h.whole && end >= len(h.text)-len(`\uffff`): // an escape or a word may be cut as well
		return len(h.text), true, true
	}
	return end, false, false
}

// isArray reports whether the text, which begins with [, is an array of objects: one over several lines, or one on a
// line of its own in a file without objects on lines of their own.
func (h fileHead) isArray() bool {
	end, cut, ok := h.first()
	holds := len(h.text) > 1 && bytes.HasPrefix(bytes.TrimLeft(h.text[1:], " \t\r\n"), []byte("{"))
	switch {
	case ok && bytes.IndexByte(h.text[:end], '\n') >= 0:
		return !cut || holds
	case ok:
		return holds && h.objects == 0
	}
	comma := func(line []byte) bool { return bytes.HasSuffix(line, []byte("},")) }
	return holds && h.objects == 0 && slices.ContainsFunc(h.lines, comma) // with a mistake further down
}

// isPretty reports whether the first value of the text, which begins with {, is an object over several lines.
func (h fileHead) isPretty() bool {
	end, cut, ok := h.first()
	if !ok || bytes.IndexByte(bytes.TrimSpace(h.text[:end]), '\n') < 0 {
		return false
	}
	return !cut || !h.whole || h.objects == 0
}

// csvRows is how many rows must have as many fields as the header, at most.
const csvRows = 20

// isCSV reports whether the text is rows of equally many fields, at least two, under a header; or lines under the name
// of a column that prompts have.
func (h fileHead) isCSV() bool {
	begins := func(line []byte) bool { return line[0] == '{' || line[0] == '[' }
	if len(h.lines) < 2 || slices.ContainsFunc(h.lines, begins) {
		return false
	}
	if slices.Contains([]string{"prompt", "question", "text"}, strings.Trim(strings.ToLower(string(h.lines[0])), `"`)) {
		return true
	}
	for _, comma := range ",;\t" {
		if h.isSeparated(comma) {
			return true
		}
	}
	return false
}

func (h fileHead) isSeparated(comma rune) bool {
	r := csv.NewReader(bytes.NewReader(h.text))
	r.Comma = comma
	for n := 0; ; n++ {
		fields, err := r.Read() // fails at a row with more or fewer fields than the first one
		switch {
		case errors.Is(err, io.EOF), n > csvRows, err != nil && !h.whole && n > 1 && r.InputOffset() >= int64(len(h.text)):
			return n > 1
		case err != nil || len(fields) < 2:
			return false
		}
	}
}
