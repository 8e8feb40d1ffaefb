package input

import (
	"bytes"
	"io"

	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
	"rollout/shared/shardtable"
)

// wholeShard is the largest shard that is read at once, in bytes. Only a single long
// line, or very many blank lines, make a shard longer.
const wholeShard = 4 << 20

// lines reads the lines of a shard. The caller may keep them.
type lines struct {
	scanner *jsonl.Scanner
	hash    *identity.Hasher
	whole   bool // the shard is in memory: slices stay valid, and hash has all bytes
}

// openLines starts reading a shard's bytes. Reading and hashing all bytes at once
// takes a third of the time of doing it line by line.
func openLines(r io.Reader, cut shardtable.Row) (lines, error) {
	l := lines{hash: identity.NewHasher(), whole: cut.Length <= wholeShard}
	scan := cut.ScanOptions()
	if !l.whole {
		scan.OnLongLine = func(p []byte) { l.hash.Write(p) }
		l.scanner = jsonl.NewScanner(r, scan)
		return l, nil
	}
	b := make([]byte, cut.Length)
	n, err := io.ReadFull(r, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF { // a broken connection
		return l, err
	}
	l.hash.Write(b[:n]) // if bytes are missing, the digest differs
	l.scanner = jsonl.NewMemoryScanner(b[:n], scan)
	return l, nil
}

// next returns the next line, or io.EOF.
func (l lines) next() (jsonl.Line, error) {
	line, err := l.scanner.Next()
	if err == nil && !l.whole {
		l.hash.Write(line.Raw)
		line.Bytes = bytes.Clone(line.Bytes)
	}
	return line, err
}

// digest returns the digest of all bytes, after io.EOF.
func (l lines) digest() identity.ContentID { return l.hash.Sum() }
