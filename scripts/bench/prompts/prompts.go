// Package prompts writes prompts files of a given size for benchmarks. The same
// arguments give the same bytes.
package prompts

import (
	"bufio"
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

// Chat appends the i-th line of a file of short chats, each with an answer of exactly
// the given number of tokens on servers that know ignore_eos, and a seed, as the product
// sends one: vLLM samples seeded requests one by one. No two lines have the same id or
// messages.
func Chat(dst []byte, i, tokens int) []byte {
	dst = append(dst, `{"id":"c-`...)
	dst = appendPadded(dst, i, 9)
	dst = append(dst, `","messages":[{"role":"user","content":"`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, ' ')
	k := i % 57 // the start in the text, so that neighbours differ early
	dst = append(dst, text[k:k+40]...)
	dst = append(dst, `"}],"ignore_eos":true,"max_tokens":`...)
	dst = strconv.AppendInt(dst, int64(tokens), 10)
	dst = append(dst, `,"seed":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	return append(dst, "}\n"...)
}

// Write writes n lines of about size bytes each to a new file.
func Write(path string, n, size int) error {
	return write(path, n, func(dst []byte, i int) []byte { return Line(dst, i, size) })
}

// WriteChats writes n lines of chats to a new file.
func WriteChats(path string, n, tokens int) error {
	return write(path, n, func(dst []byte, i int) []byte { return Chat(dst, i, tokens) })
}

// write writes n lines to a new file.
func write(path string, n int, line func(dst []byte, i int) []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	var buf []byte
	for i := range n {
		buf = line(buf[:0], i)
		if _, err := b.Write(buf); err != nil {
			_ = f.Close() // the first error is returned
			return err
		}
	}
	if err := b.Flush(); err != nil {
		_ = f.Close() // the first error is returned
		return err
	}
	return f.Close()
}

// appendPadded appends a number with leading zeros.
func appendPadded(dst []byte, n, width int) []byte {
	s := strconv.Itoa(n)
	for range width - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}
