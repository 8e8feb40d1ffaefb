// Package cuts tells how the input of a run is cut into ranges and shards: of a file before it is a run, by the code
// that planning uses, and of a run from its plan. It writes nothing.
package cuts

import (
	"context"
	"errors"
	"io"
	"os"

	"rollout/scripts/rollout/promptsfile"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Cuts is how an input is cut.
type Cuts struct {
	Inputs []Input `json:"inputs"`
	Ranges []Range `json:"ranges"` // empty if the run's plan is known no more
	Shards int     `json:"shards"`
	Items  uint64  `json:"items"` // lines that are not blank
	// LeastItems and MostItems are the smallest and the largest number of items in a shard; 0 if it is not known.
	LeastItems int `json:"least_items"`
	MostItems  int `json:"most_items"`
	// Complete says that nothing will be added: a plan may not be ready yet, and that of a rollout grows with each batch.
	Complete bool `json:"complete"`
}

// Input is one input object or file.
type Input struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`     // bytes, as stored
	Unpacked int64  `json:"unpacked"` // bytes; those of a file that is not packed are its size
}

// Range is a part of an input that is cut on its own.
type Range struct {
	Input  int    `json:"input"`  // index of an Input; behind them is what the run appended
	Offset int64  `json:"offset"` // a line belongs to the range with its first byte
	End    int64  `json:"end"`
	Shards int    `json:"shards"`
	Items  uint64 `json:"items"`
}

// add counts a shard of the last range.
func (c *Cuts) add(items int) {
	r := &c.Ranges[len(c.Ranges)-1]
	r.Shards, r.Items = r.Shards+1, r.Items+uint64(items)
	c.Shards, c.Items = c.Shards+1, c.Items+uint64(items)
	if c.LeastItems == 0 || items < c.LeastItems {
		c.LeastItems = items
	}
	c.MostItems = max(c.MostItems, items)
}

// OfFile cuts a prompts file as the run of the config does. It reads the file once, or twice if it is packed: the size
// of the shards depends on that of the unpacked file.
func OfFile(ctx context.Context, path string, c config.Run) (Cuts, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Cuts{}, fault.WithKind(fault.Invalid, err, "read the prompts")
	}
	in := Input{Name: path, Size: info.Size(), Unpacked: info.Size()}
	if packed, _ := input.Packing(path); packed != "" {
		if err := reading(ctx, path, c, func(r io.Reader) error {
			in.Unpacked, err = io.Copy(io.Discard, r)
			return err
		}); err != nil {
			return Cuts{}, err
		}
	}
	out := Cuts{Inputs: []Input{in}, Ranges: []Range{}, Complete: true}
	err = reading(ctx, path, c, func(r io.Reader) error { return out.cut(r, in.Unpacked, c) })
	return out, err
}

// cut cuts the unpacked content, range after range.
func (c *Cuts) cut(r io.Reader, size int64, of config.Run) error {
	options := shardtable.CutObject(of.Shard.Items, size)
	lines := jsonl.NewScanner(r, jsonl.Options{})
	var cutter *shardtable.Cutter
	flush := func() {
		if cutter != nil {
			if row, ok := cutter.Flush(); ok {
				c.add(int(row.Items))
			}
		}
	}
	begin := func() {
		flush()
		offset := int64(len(c.Ranges)) * record.RangeSize
		c.Ranges = append(c.Ranges, Range{Offset: offset, End: min(offset+record.RangeSize, size)})
		cutter = shardtable.NewCutter(options)
	}
	if size > 0 {
		begin()
	}
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for l.Offset >= int64(len(c.Ranges))*record.RangeSize {
			begin()
		}
		if row, ok := cutter.Add(l); ok {
			c.add(int(row.Items))
		}
	}
	for len(c.Ranges) < record.RangeCount(size) { // the last line is longer than a range
		begin()
	}
	flush()
	return nil
}

// reading calls read with the unpacked content of a file, up to the config's limit.
func reading(ctx context.Context, path string, c config.Run, read func(io.Reader) error) error {
	r, err := promptsfile.Open(ctx, path, c.Input.MaxUnpacked)
	if err != nil {
		return err
	}
	defer r.Close() // opened for reading: closing loses nothing
	return read(r)
}

// rowsAtOnce is how many rows of a shard table are read at once.
const rowsAtOnce = 4096

// OfRun reads how the input of a run is cut, as far as it is planned. A run without a plan is NotFound. Of one whose
// files in work/ were deleted, only the numbers are known.
func OfRun(ctx context.Context, p host.Ports, m record.Manifest) (Cuts, error) {
	index := input.NewIndex(p.Blobs, p.Docs)
	doc, err := index.Plan(ctx, m.Run, 0, 0)
	if err != nil {
		return Cuts{}, err
	}
	out := Cuts{Inputs: []Input{}, Ranges: []Range{}, Complete: doc.Complete()}
	if out.Inputs, err = inputsOf(ctx, index, m, doc); err != nil {
		return out, err
	}
	for k := range doc.Merged {
		e, err := index.Entry(ctx, m.Run, k)
		if err == nil {
			// Of what was appended before the last object, the plan has no place.
			at, noPlace := index.Locate(ctx, m.Run, doc, k)
			if noPlace != nil && !fault.Is(noPlace, fault.Corrupt) {
				return out, noPlace
			}
			out.Ranges = append(out.Ranges, Range{Input: e.Input, Offset: at.Offset, End: at.Limit})
			err = out.rows(ctx, index, m, e)
		}
		if fault.Is(err, fault.NotFound) {
			return Cuts{Inputs: out.Inputs, Ranges: []Range{}, Shards: doc.Shards, Items: doc.Items,
				Complete: out.Complete}, nil
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// inputsOf returns the inputs of a run. If the list of them was deleted, it returns those that the manifest names.
func inputsOf(ctx context.Context, index *input.Index, m record.Manifest, doc record.Plan) ([]Input, error) {
	out := []Input{}
	for in, err := range index.All(ctx, m) {
		if fault.Is(err, fault.Corrupt) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		n := Input{Name: in.Label(), Size: in.Size, Unpacked: in.Size}
		if i := len(out); i < doc.Sources() {
			src, err := index.Source(ctx, m.Run, doc, i)
			if err != nil {
				return out, err
			}
			n.Unpacked = src.Size
		}
		out = append(out, n)
	}
	return out, nil
}

// rows counts the shards of a range.
func (c *Cuts) rows(ctx context.Context, index *input.Index, m record.Manifest, e record.IndexEntry) error {
	for from := 0; from < e.Shards; from += rowsAtOnce {
		rows, err := index.Rows(ctx, m.Run, e, from, min(rowsAtOnce, e.Shards-from))
		if err != nil {
			return err
		}
		for _, row := range rows {
			c.add(int(row.Items))
		}
	}
	return nil
}
