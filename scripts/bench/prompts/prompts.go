// Package prompts writes prompts files of a given size for benchmarks. The same
// arguments give the same bytes.
package prompts

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// text is the source of the prompts, long enough for a line of 4 KB.
var text = strings.Repeat("the quick brown fox jumps over the lazy dog and reads on ", 80)

const least = 60 // bytes of the shortest line: an id, a number and punctuation

// Line appends the i-th line, of about size bytes with its line feed. No two lines
// have the same id or prompt.
func Line(dst []byte, i, size int) []byte {
	start := len(dst)
	dst = append(dst, `{"id":"r-`...)
	dst = appendPadded(dst, i, 9)
	dst = append(dst, `","prompt":"`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, ' ')
	k := i % 57 // the start in the text, so that neighbours differ early
	room := max(size, least) - (len(dst) - start) - len("\"}\n")
	dst = append(dst, text[k:min(k+room, len(text))]...)
	return append(dst, "\"}\n"...)
}

// Write writes n lines of about size bytes each to a new file.
func Write(path string, n, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f, n, size); err != nil {
		_ = f.Close() // the first error is returned
		return err
	}
	return f.Close()
}

// write writes the lines.
func write(w io.Writer, n, size int) error {
	b := bufio.NewWriterSize(w, 1<<20)
	var line []byte
	for i := range n {
		line = Line(line[:0], i, size)
		if _, err := b.Write(line); err != nil {
			return err
		}
	}
	return b.Flush()
}

// appendPadded appends a number with leading zeros.
func appendPadded(dst []byte, n, width int) []byte {
	s := strconv.Itoa(n)
	for range width - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}
