package result

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Read reads a committed result, and checks its length and digest.
func Read(ctx context.Context, blobs blob.Store, ref shard.Ref) ([]byte, error) {
	b, err := input.ReadObject(ctx, blobs, ref.Key, ref.Length)
	if err != nil {
		return nil, lost(err)
	}
	if int64(len(b)) != ref.Length || identity.Content(b).String() != ref.Digest {
		return nil, lost(NotCommitted(ref))
	}
	return b, nil
}

// bytesTogether bounds the results that are in memory at once, but for a larger one.
const bytesTogether = 64 << 20

// Together returns how many shards, from the first on, have results or checkpoints that
// are small enough to be in memory at once: at least one, if there is any.
func Together(docs []shard.Doc) int {
	size := int64(0)
	for n, d := range docs {
		for _, ref := range []*shard.Ref{d.Result, d.Checkpoint} {
			if ref != nil {
				size += ref.Length
			}
		}
		if n > 0 && size > bytesTogether {
			return n
		}
	}
	return len(docs)
}

// Verify reads a result of any size, and checks its length and digest. It reads into buf.
func Verify(ctx context.Context, blobs blob.Store, ref shard.Ref, buf []byte) error {
	r, _, err := blobs.Get(ctx, ref.Key, blob.GetOptions{})
	if err != nil {
		return lost(fault.Wrap(err, "read %s", ref.Key))
	}
	defer r.Close()
	h := identity.NewHasher()
	n, err := io.CopyBuffer(h, io.LimitReader(r, ref.Length+1), buf)
	if err != nil {
		return fault.Wrap(err, "read %s", ref.Key)
	}
	if n != ref.Length || h.Sum().String() != ref.Digest {
		return lost(NotCommitted(ref))
	}
	return nil
}

// ErrLost is wrapped by the errors of Read, Verify and ReadCheckpoint which mean that the
// object is gone or damaged, so that reading it again does not help.
var ErrLost = errors.New("rows are lost")

// lost wraps ErrLost, if the error means that.
func lost(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return &fault.Error{Kind: fault.KindOf(err), Err: fmt.Errorf("%w: %w", ErrLost, err)}
	}
	return err
}

// NotCommitted is the error of a result that is not the one that was committed.
func NotCommitted(ref shard.Ref) error {
	return fault.New(fault.Corrupt, "result %s does not have the digest that its shard names; restore it from a backup",
		ref.Key)
}

// Of is what a result of a shard is of.
type Of struct {
	Dialect dialect.Name
	First   uint64 // the index of the shard's first item in the run
	Items   int    // of the shard
}

// Rows returns the rows of a committed result in item order. OutputLen is the length of
// its output rows. The bytes of the rows are parts of b.
func (o Of) Rows(b []byte, outputLen int64) ([]Row, error) {
	if outputLen < 0 || outputLen > int64(len(b)) {
		return nil, fault.New(fault.Corrupt, "a result of %d bytes has %d of output rows", len(b), outputLen)
	}
	rows, ok := o.order(linesIn(b[:outputLen]), linesIn(b[outputLen:]))
	if !ok {
		return nil, fault.New(fault.Corrupt, "a result does not have a row for each of the %d items of its shard", o.Items)
	}
	return rows, nil
}

// order returns output rows and error rows in item order: an error row names its item,
// and the others are the answered ones. It returns false unless each item has one row.
func (o Of) order(outputs, errs [][]byte) (rows []Row, ok bool) {
	if len(outputs)+len(errs) != o.Items {
		return nil, false
	}
	rows = make([]Row, o.Items)
	for _, b := range errs {
		f, ok := dialect.ReadFailure(o.Dialect, b)
		at := f.Place.Item - o.First
		if !ok || f.Place.Item < o.First || at >= uint64(len(rows)) || rows[at].Bytes != nil {
			return nil, false
		}
		rows[at] = Row{Item: int(at), Class: f.Class, Bytes: b}
	}
	for i := range rows {
		if rows[i].Bytes == nil {
			rows[i] = Row{Item: i, Bytes: outputs[0]}
			outputs = outputs[1:]
		}
	}
	return rows, true
}

// linesIn returns the lines of b, with their line feeds.
func linesIn(b []byte) (lines [][]byte) {
	for l := range bytes.Lines(b) {
		lines = append(lines, l)
	}
	return lines
}

// ReadShard reads the lines of a shard and the rows that its document names: those of its
// result, in item order, or before it those of its checkpoint.
func ReadShard(ctx context.Context, blobs blob.Store, x *input.Index, m record.Manifest, d shard.Doc) (
	in input.Shard, rows []Row, err error) {
	e, row, err := x.FindShard(ctx, m.Run, d.Shard)
	if err != nil {
		return in, nil, err
	}
	if in, err = x.LoadShard(ctx, m, e.Range, row); err != nil {
		return in, nil, err
	}
	if m, err = m.InRole(in.Role); err != nil {
		return in, nil, err
	}
	switch {
	case d.Result != nil:
		b, err := Read(ctx, blobs, *d.Result)
		if err != nil {
			return in, nil, err
		}
		of := Of{Dialect: dialect.Name(m.Dialect), First: in.FirstItem, Items: len(in.Lines)}
		rows, err = of.Rows(b, d.OutputLen)
		return in, rows, fault.Wrap(err, "result %s", d.Result.Key)
	case d.Checkpoint != nil:
		rows, err = ReadCheckpoint(ctx, blobs, *d.Checkpoint, len(in.Lines))
	}
	return in, rows, err
}
