package input

import (
	"bytes"
	"io"

	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
	"rollout/shared/shardtable"
)

// wholeShard is how many bytes of a shard are read at once. Only single long
// lines, and blank ones in masses, make a shard longer.
const wholeShard = 4 << 20

// lines are a shard's lines as they are read. They may be kept.
type lines struct {
	scanner *jsonl.Scanner
	hash    *identity.Hasher
	whole   bool // the scanner's slices stay valid, and the hash has them
}

// openLines begins to read a shard's bytes. One read and one hash of all of
// them take a third of what they do line by line.
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
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF { // themselves: a broken connection may be due to one
		return l, err
	}
	l.hash.Write(b[:n]) // if it is too short, the digest tells
	l.scanner = jsonl.NewMemoryScanner(b[:n], scan)
	return l, nil
}

func (l lines) next() (jsonl.Line, error) {
	line, err := l.scanner.Next()
	if err == nil && !l.whole {
		l.hash.Write(line.Raw)
		line.Bytes = bytes.Clone(line.Bytes)
	}
	return line, err
}

// digest is that of all bytes, once they are read.
func (l lines) digest() identity.ContentID { return l.hash.Sum() }
