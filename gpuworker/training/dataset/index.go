package dataset

import (
	"context"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"io"

	"lukechampine.com/blake3"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Source is a file of rows.
type Source interface {
	io.ReaderAt
	// Size returns the number of bytes.
	Size() int64
	// Name returns the source's name in messages.
	Name() string
}

// Index finds the rows of a source. It is safe for concurrent use.
type Index struct {
	source Source
	every  uint64 // rows per group
	groups []group
	rows   uint64
	length int64
	digest string
	hash   maphash.Seed
}

// group is the position of Index.every consecutive rows; the last group may have
// fewer.
type group struct {
	offset int64  // of its first row
	line   uint64 // number of its first line, from 1
	sum    uint64 // checksum of its rows' bytes and offsets, valid in this process
}

// maxGroups bounds the memory of an index to 6 MiB. A source with more rows has
// larger groups; Row reads a group from its beginning.
const maxGroups = 1 << 18

// maxProblems is the maximum number of bad rows that Open reports.
const maxProblems = 20

// Open reads the whole source and calls check with each row's line, which check
// must not retain. Open returns the errors of the first 20 bad rows, joined; each
// is an Invalid fault with the message `name:line: reason`.
func Open(ctx context.Context, source Source, check func(line []byte) error) (*Index, error) {
	x := &Index{source: source, every: 1, hash: maphash.MakeSeed()}
	if err := x.recognize(); err != nil {
		return nil, err
	}
	digest := blake3.New(32, nil)
	length := source.Size()
	lines := jsonl.NewScanner(io.TeeReader(io.NewSectionReader(source, 0, length), digest), jsonl.Options{})
	var problems []error
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fault.WithKind(fault.Unavailable, err, "read %s", source.Name())
		}
		if line.Number%1024 == 0 && ctx.Err() != nil {
			return nil, fault.WithKind(fault.Canceled, ctx.Err(), "read %s", source.Name())
		}
		if line.Blank {
			continue
		}
		if err := x.checked(line, check); err != nil {
			if problems = append(problems, err); len(problems) == maxProblems {
				more := fault.New(fault.Invalid, "%s: stopped after %d errors, there may be more", source.Name(), maxProblems)
				return nil, errors.Join(append(problems, more)...)
			}
			continue
		}
		x.add(line)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if x.rows == 0 {
		return nil, fault.New(fault.Invalid, "%s: the file has no rows", source.Name())
	}
	x.length, x.digest = length, hex.EncodeToString(digest.Sum(nil))
	return x, nil
}

// recognize refuses a source of another format than JSON lines, by its first bytes.
func (x *Index) recognize() error {
	head := make([]byte, min(int64(jsonl.RecognizeLen), x.source.Size()))
	if _, err := x.source.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fault.WithKind(fault.Unavailable, err, "read %s", x.source.Name())
	}
	return fault.Wrap(jsonl.Recognize(x.source.Name(), head, int64(len(head)) == x.source.Size()), "%s", x.source.Name())
}

// checked returns the error of a line, with the source's name and line number.
func (x *Index) checked(line jsonl.Line, check func([]byte) error) error {
	if line.TooLong {
		return fault.New(fault.Invalid, "%s:%d: the row has more than %d bytes",
			x.source.Name(), line.Number, jsonl.MaxLine)
	}
	if err := check(line.Bytes); err != nil {
		return fault.New(fault.Invalid, "%s:%d: %w", x.source.Name(), line.Number, err)
	}
	return nil
}

// add adds the next row. When the index is full, it merges each two groups into
// one.
func (x *Index) add(line jsonl.Line) {
	if x.rows%x.every == 0 {
		if len(x.groups) == maxGroups {
			for i := range maxGroups / 2 {
				x.groups[i] = x.groups[2*i]
				x.groups[i].sum += x.groups[2*i+1].sum
			}
			x.groups, x.every = x.groups[:maxGroups/2], 2*x.every
		}
		if x.rows%x.every == 0 {
			x.groups = append(x.groups, group{offset: line.Offset, line: line.Number})
		}
	}
	x.groups[len(x.groups)-1].sum += x.sum(line)
	x.rows++
}

// sum returns a row's contribution to the checksum of its group: a hash of its
// bytes times an odd number that depends on its offset.
func (x *Index) sum(line jsonl.Line) uint64 {
	return maphash.Bytes(x.hash, line.Raw) * (2*uint64(line.Offset) + 1)
}

// Rows returns the number of rows, which is at least 1.
func (x *Index) Rows() uint64 { return x.rows }

// Digest returns the blake3-256 of the source's bytes, in hex.
func (x *Index) Digest() string { return x.digest }

// Name returns the source's name.
func (x *Index) Name() string { return x.source.Name() }

// Row is a row's line, and its line number in the file, from 1.
type Row struct {
	Line   []byte
	Number uint64
}

// Row returns row i, from 0 to Rows()-1. It returns a Corrupt fault if the bytes of
// the row's group have changed since Open.
func (x *Index) Row(i uint64) (Row, error) {
	g := x.groups[i/x.every]
	end := x.length
	if next := i/x.every + 1; next < uint64(len(x.groups)) {
		end = x.groups[next].offset
	}
	changed := &fault.Error{
		Kind:   fault.Corrupt,
		Err:    fault.New(fault.Corrupt, "%s:%d: the file has changed since the training began", x.source.Name(), g.line),
		Remedy: "restore the original file to continue, or start a new training run",
	}
	section := io.NewSectionReader(x.source, g.offset, end-g.offset)
	lines := jsonl.NewScanner(section, jsonl.Options{Offset: g.offset})
	var row Row
	var sum uint64
	for n := uint64(0); ; {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF) && (sum != g.sum || row.Line == nil):
			return Row{}, changed
		case errors.Is(err, io.EOF):
			return row, nil
		case err != nil:
			return Row{}, fault.WithKind(fault.Unavailable, err, "read %s", x.source.Name())
		case line.TooLong:
			return Row{}, changed
		case line.Blank:
			continue
		}
		if n == i%x.every {
			row = Row{append([]byte{}, line.Bytes...), g.line + line.Number - 1}
		}
		sum += x.sum(line)
		n++
	}
}
