package plan

import (
	"bytes"
	"context"
	"errors"
	"io"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/cuttable"
	"rollout/shared/dialect"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// Range cuts one range into shards, and merges what can be merged by then.
func (p *Planner) Range(ctx context.Context, e events.PlanRange) error {
	id := identity.RunID(e.Run)
	if _, err := p.Blobs.Stat(ctx, record.RangeKey(id, e.Range), ""); err == nil {
		return p.merge(ctx, id)
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	m, err := p.manifest(ctx, id)
	if err != nil {
		return err
	}
	var doc record.Plan
	if _, _, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc); err != nil {
		return err
	}
	in, offset, limit, ok := doc.Locate(e.Range)
	if !ok {
		return fault.New(fault.Invalid, "plan of run %s has no range %d", id, e.Range)
	}
	c := cut{planner: p, manifest: m, rng: e.Range, input: in, source: doc.Ranges[in], offset: offset, limit: limit}
	if err := c.run(ctx); err != nil {
		_, err := p.trouble(ctx, id, err)
		return err
	}
	return p.merge(ctx, id)
}

// cut is one range being cut.
type cut struct {
	planner       *Planner
	manifest      record.Manifest
	rng, input    int
	source        record.Ranges
	offset, limit int64

	totals cuttable.Totals
	ids    cuttable.IDList
}

// run leaves the cut table, the id list, and then the range result, which
// says that the others are whole.
func (c *cut) run(ctx context.Context) error {
	id := c.manifest.Run
	err := c.stream(ctx, record.CutTableKey(id, c.rng), func(w io.Writer) error { return c.table(ctx, w) })
	if err != nil {
		return err
	}
	if c.ids.Len() > 0 {
		err := c.stream(ctx, record.IDListKey(id, c.rng), func(w io.Writer) error {
			return c.ids.Write(w, uint32(c.input), uint32(c.offset/record.RangeSize))
		})
		if err != nil {
			return err
		}
	}
	res := record.RangeResult{Shards: int(c.totals.Rows), Items: c.totals.Items, Lines: c.totals.Lines, IDs: c.ids.Len()}
	return c.put(ctx, record.RangeKey(id, c.rng), bytes.NewReader(record.Encode(res)))
}

// table streams the range through a cutter into its cut table, and leaves
// totals and ids.
func (c *cut) table(ctx context.Context, w io.Writer) error {
	opts := cuttable.CutOptions{Input: uint32(c.input), MaxItems: c.manifest.Config.Shard.Items, MaxBytes: cuttable.CutBytes(c.source.Size)}
	cutter := cuttable.NewCutter(opts)
	c.ids = cuttable.IDList{}
	index := c.offset / record.RangeSize
	scan := cuttable.ScanRange(index)
	r, err := input.Open(ctx, c.planner.Blobs, c.source.Key, c.source.Version, scan.Offset, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	out := cuttable.NewWriter(w, cuttable.Header{Input: opts.Input, Range: uint32(index),
		Start: uint64(c.offset), End: uint64(c.limit), MaxItems: uint32(opts.MaxItems), MaxBytes: uint32(opts.MaxBytes)})
	lines := cutter.Scanner(r, scan)
	err = c.cutLines(ctx, lines, cutter, out)
	c.totals = cutter.Totals()
	return err
}

// checkEvery is how many lines are cut between looks at the context.
const checkEvery = 1024

func (c *cut) cutLines(ctx context.Context, lines *jsonl.Scanner, cutter *cuttable.Cutter, out *cuttable.Writer) error {
	name := dialect.Name(c.manifest.Dialect)
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fault.Wrap(err, "read %s", c.source.Key)
		}
		if row, ok := cutter.Add(l); ok {
			if err := out.Append(row); err != nil {
				return err
			}
		}
		if l.Blank || l.TooLong {
			continue
		}
		if id, ok := dialect.ScanID(name, l.Bytes); ok {
			t := cutter.Totals()
			c.ids.Add(id, uint32(t.Items-1), uint32(t.Lines-1))
		}
	}
	if row, ok := cutter.Flush(); ok {
		if err := out.Append(row); err != nil {
			return err
		}
	}
	return out.Flush()
}

// errPutOver cuts off the writer of an object that needs no more bytes.
var errPutOver = errors.New("the put is over")

// stream puts what write writes, create-only. Write always runs to its end,
// since it counts as well.
func (c *cut) stream(ctx context.Context, key string, write func(io.Writer) error) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		done <- err
	}()
	putErr := c.put(ctx, key, r)
	r.CloseWithError(errPutOver)
	writeErr := <-done
	if putErr == nil && writeErr != nil { // the object was there already
		return write(io.Discard)
	}
	return putErr
}

// put creates an object; one that is there has the same bytes.
func (c *cut) put(ctx context.Context, key string, r io.Reader) error {
	_, err := c.planner.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
