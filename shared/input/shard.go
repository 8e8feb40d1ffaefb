package input

import (
	"context"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Line is one item's line, as it stands in the input.
type Line struct {
	Place dialect.Place
	Bytes []byte // nil if the line is too long
	// TooLong is the length of a line that is longer than lines may be; 0 else.
	TooLong int64
	// Duplicate names the line that had this line's id first; nil if none.
	Duplicate *dialect.Place
	// Original names the line that asks the same and came first, if the run
	// asks it once: this one gets a copy of its answer. Nil if none.
	Original *dialect.Place
}

// Shard is a shard's lines. They are verified to be the planned bytes.
type Shard struct {
	FirstItem uint64
	Lines     []Line
}

// LoadShard reads a shard, given its range and its row there. A missing input is
// NotFound; one that is not the planned bytes any more is Corrupt with class
// input_changed.
func (x *Index) LoadShard(ctx context.Context, m record.Manifest, rng, row int) (Shard, error) {
	e, err := x.Entry(ctx, m.Run, rng)
	if err != nil {
		return Shard{}, err
	}
	rows, err := x.Rows(ctx, m.Run, e, row, 1)
	if err != nil {
		return Shard{}, err
	}
	cut := rows[0]
	p, err := x.Plan(ctx, m.Run, 0, rng+1)
	if err != nil {
		return Shard{}, err
	}
	if e.Input < 0 || e.Input >= len(p.Ranges) || e.Input >= len(m.Inputs) {
		return Shard{}, fault.New(fault.Corrupt, "range %d of run %s names input %d of %d", rng, m.Run, e.Input, len(p.Ranges))
	}
	src := p.Ranges[e.Input]
	r, err := OpenPinned(ctx, x.blobs, src.Key, src.Version, int64(cut.Offset), int64(cut.Length))
	if err != nil {
		return Shard{}, err
	}
	defer r.Close()
	s := Shard{FirstItem: e.FirstItem + cut.FirstItem, Lines: make([]Line, 0, cut.Items)}
	file := m.Inputs[e.Input].Label()
	from, err := openLines(r, cut)
	if err != nil {
		return Shard{}, fault.Wrap(err, "read %s", src.Key)
	}
	for {
		l, err := from.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Shard{}, fault.Wrap(err, "read %s", src.Key)
		}
		if l.Blank {
			continue
		}
		if len(s.Lines) == int(cut.Items) {
			return Shard{}, changed(src.Key)
		}
		inRange := cut.FirstLine + l.Number
		line := Line{Place: dialect.Place{Item: s.FirstItem + uint64(len(s.Lines)), File: file, Line: e.FirstLine + inRange}}
		if l.TooLong {
			line.TooLong = l.Length
		} else {
			line.Bytes = l.Bytes
		}
		s.Lines = append(s.Lines, line)
	}
	if from.digest() != identity.ContentID(cut.Digest) || len(s.Lines) != int(cut.Items) {
		return Shard{}, changed(src.Key)
	}
	return s, x.mark(ctx, m, e, cut, s.Lines)
}

// OpenPinned opens a range of a pinned input. Missing is NotFound; another version
// in its place is Corrupt with class input_changed.
func OpenPinned(ctx context.Context, blobs blob.Store, key, version string, offset, length int64) (io.ReadCloser, error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{Version: version, Offset: offset, Length: length})
	if !fault.Is(err, fault.NotFound) {
		return r, fault.Wrap(err, "open input %s", key)
	}
	switch _, statErr := blobs.Stat(ctx, key, ""); {
	case statErr == nil:
		return nil, changed(key)
	case !fault.Is(statErr, fault.NotFound): // it can't be told yet
		return nil, fault.Wrap(statErr, "open input %s", key)
	}
	return nil, &fault.Error{Kind: fault.NotFound, Err: err, Op: "the input " + key + " is gone", Remedy: "put the same file back and resume the run"}
}

func changed(key string) error {
	return &fault.Error{Kind: fault.Corrupt, Class: fault.InputChanged,
		Op: "the input " + key + " is not what was planned any more", Remedy: "submit the new file as a run of its own"}
}
