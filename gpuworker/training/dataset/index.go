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

// Source is a file of rows. Name is what messages call it.
type Source interface {
	io.ReaderAt
	Size() int64
	Name() string
}

// Index knows where the rows of a source stand. It may be read by many
// goroutines.
type Index struct {
	source Source
	every  uint64 // rows of a group
	groups []group
	rows   uint64
	length int64
	digest string
	hash   maphash.Seed
}

// group is where every rows stand, in order; the last group may have fewer.
type group struct {
	offset int64
	line   uint64 // of its first row, from 1
	sum    uint64 // of its rows' bytes and places, within this process
}

// maxGroups bounds an index to 6 MiB. A source of more rows has larger groups,
// which are read from their beginning to get at a row.
const maxGroups = 1 << 18

// problems of one source that are told at once.
const maxProblems = 20

// Open reads the whole source: check looks at each row's line, and must not
// keep it. Errors of rows are Invalid and say `name:line: reason`, the first 20
// at once.
func Open(ctx context.Context, source Source, check func(line []byte) error) (*Index, error) {
	x := &Index{source: source, every: 1, hash: maphash.MakeSeed()}
	if err := x.sniff(); err != nil {
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
				return nil, errors.Join(append(problems, fault.New(fault.Invalid, "%s: and perhaps more: this looked no further", source.Name()))...)
			}
			continue
		}
		x.add(line)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if x.rows == 0 {
		return nil, fault.New(fault.Invalid, "%s: there is no row in it", source.Name())
	}
	x.length, x.digest = length, hex.EncodeToString(digest.Sum(nil))
	return x, nil
}

func (x *Index) sniff() error {
	head := make([]byte, min(int64(jsonl.SniffLen), x.source.Size()))
	if _, err := x.source.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fault.WithKind(fault.Unavailable, err, "read %s", x.source.Name())
	}
	return fault.Wrap(jsonl.Sniff(head), "%s", x.source.Name())
}

func (x *Index) checked(line jsonl.Line, check func([]byte) error) error {
	if line.TooLong {
		return fault.New(fault.Invalid, "%s:%d: the row has more than %d bytes", x.source.Name(), line.Number, jsonl.MaxLine)
	}
	if err := check(line.Bytes); err != nil {
		return fault.New(fault.Invalid, "%s:%d: %w", x.source.Name(), line.Number, err)
	}
	return nil
}

// add notes the next row. When there are too many groups, two become one.
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

// sum is what a row adds to its group's: a hash of its bytes, times a number
// of its place.
func (x *Index) sum(line jsonl.Line) uint64 {
	return maphash.Bytes(x.hash, line.Raw) * (2*uint64(line.Offset) + 1)
}

// Rows is the number of rows; at least 1.
func (x *Index) Rows() uint64 { return x.rows }

// Digest is the blake3-256, in hex, of the source's bytes.
func (x *Index) Digest() string { return x.digest }

// Name is the source's.
func (x *Index) Name() string { return x.source.Name() }

// Row is a row's line and its number in the file, from 1.
type Row struct {
	Line   []byte
	Number uint64
}

// Row returns the i-th row, i below Rows. Corrupt says that the source's bytes
// are not those that Open read.
func (x *Index) Row(i uint64) (Row, error) {
	g := x.groups[i/x.every]
	end := x.length
	if next := i/x.every + 1; next < uint64(len(x.groups)) {
		end = x.groups[next].offset
	}
	changed := &fault.Error{Kind: fault.Corrupt, Err: fault.New(fault.Corrupt, "%s:%d: the file has changed since the training began", x.source.Name(), g.line),
		Remedy: "put its bytes back to go on, or start another training"}
	lines := jsonl.NewScanner(io.NewSectionReader(x.source, g.offset, end-g.offset), jsonl.Options{Offset: g.offset})
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
