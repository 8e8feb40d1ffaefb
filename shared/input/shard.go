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

// Line is the line of one item, as the input has it.
type Line struct {
	Place dialect.Place
	Bytes []byte // nil if the line is too long
	// TooLong is the length of a line over the limit; 0 for other lines.
	TooLong int64
	// Head is the beginning of a line over the limit, at most jsonl.MaxHead bytes.
	Head []byte
	// Duplicate is the place of the first line with this line's id; nil if this is
	// the first.
	Duplicate *dialect.Place
	// Original is the place of the first line with the same request, whose answer
	// this line copies; nil if this is the first, or the run asks every request.
	Original *dialect.Place
}

// Shard holds the lines of a shard, verified to be the planned bytes.
type Shard struct {
	FirstItem uint64
	Lines     []Line
	Role      uint32 // see record.Manifest.Role
}

// LoadShard reads the shard of a row of a range's shard table. A missing input is
// NotFound. An input whose bytes differ from the planned ones is Corrupt with the
// class input_changed.
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
	if e.Input >= m.InputCount() && e.Input < p.Inputs() {
		return Shard{}, fault.New(fault.Corrupt, "range %d of run %s names input %d of %d",
			rng, m.Run, e.Input, m.InputCount())
	}
	src, err := x.Source(ctx, m.Run, p, e.Input)
	if err != nil {
		return Shard{}, fault.Wrap(err, "range %d", rng)
	}
	file, err := x.InputName(ctx, m, e.Input)
	if err != nil {
		return Shard{}, err
	}
	r, err := OpenPlanned(ctx, x.blobs, src.Key,
		blob.GetOptions{Version: src.Version, Offset: int64(cut.Offset), Length: int64(cut.Length)})
	if err != nil {
		return Shard{}, err
	}
	defer r.Close()
	s := Shard{FirstItem: e.FirstItem + cut.FirstItem, Lines: make([]Line, 0, cut.Items), Role: cut.Role}
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
			return Shard{}, Changed(src.Key)
		}
		inRange := cut.FirstLine + l.Number
		item := s.FirstItem + uint64(len(s.Lines))
		line := Line{Place: dialect.Place{Item: item, File: file, Line: e.FirstLine + inRange}}
		if l.TooLong {
			line.TooLong, line.Head = l.Length, l.Head
		} else {
			line.Bytes = l.Bytes
		}
		s.Lines = append(s.Lines, line)
	}
	if from.digest() != identity.ContentID(cut.Digest) || len(s.Lines) != int(cut.Items) {
		return Shard{}, Changed(src.Key)
	}
	return s, x.mark(ctx, m, e, cut, s.Lines)
}
