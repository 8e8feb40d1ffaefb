package plan

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// CutRange cuts one range into shards, unless that is done, and then merges the
// ranges that can be merged.
func (p *Planner) CutRange(ctx context.Context, e events.PlanRange) (err error) {
	id := identity.RunID(e.Run)
	ctx, span := p.StartSpan(ctx, time.Time{}, "plan range", id, slog.Int("range", e.Range))
	defer func() { span.End(err) }()
	if _, err := p.Blobs.Stat(ctx, record.RangeKey(id, e.Range), ""); err == nil {
		return p.mergeOrRecord(ctx, id)
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	m, err := host.LoadManifest(ctx, p.Docs, id)
	if err != nil {
		return err
	}
	var doc record.Plan
	if _, _, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc); err != nil {
		return err
	}
	if !doc.Has(e.Range) {
		return fault.New(fault.Invalid, "plan of run %s has no range %d", id, e.Range)
	}
	at, err := p.inputs.Locate(ctx, id, doc, e.Range)
	if err != nil {
		return err
	}
	c := cut{planner: p, manifest: m, rng: e.Range, input: at.Input, source: at.Source, offset: at.Offset, limit: at.Limit}
	if err := c.runWithin(ctx); err != nil {
		_, err := p.recordProblem(ctx, id, err)
		return err
	}
	return p.mergeOrRecord(ctx, id)
}

// cut is one range being cut.
type cut struct {
	planner       *Planner
	manifest      record.Manifest
	rng, input    int
	source        record.Ranges
	offset, limit int64

	parser   *dialect.Parser
	settings *dialect.Settings // of the run
	shardOf  shardOf           // nil: lines are cut by their number and size
	roles    []run.RolePlan    // of the range, as shardOf says
	next     int64             // where the line being read begins, in the object
	totals   shardtable.Totals
	ids      hashes
	requests hashes
}

// runWithin calls run, and returns a slowError if the call's time does not
// suffice.
func (c *cut) runWithin(ctx context.Context) error {
	began := c.planner.Clock.Now()
	within, cancel := c.planner.within(ctx)
	defer cancel()
	err := c.run(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		name, nameErr := c.planner.inputs.InputName(ctx, c.manifest, c.input)
		if nameErr != nil {
			return nameErr
		}
		return slowLine(name, c.planner.Clock.Now().Sub(began), c.next)
	}
	return err
}

// run writes the shard table, the hash lists, and last the range result, which
// says that the others are complete.
func (c *cut) run(ctx context.Context) error {
	id := c.manifest.Run
	table := func(w io.Writer) error { return c.table(ctx, w) }
	if err := c.planner.streamWhole(ctx, record.ShardTableKey(id, c.rng), table); err != nil {
		return err
	}
	res := record.RangeResult{Shards: int(c.totals.Rows), Items: c.totals.Items, Lines: c.totals.Lines,
		IDs: c.ids.total, Requests: c.requests.total}
	if len(c.roles) > 1 {
		res.Roles = c.roles
	}
	return c.planner.put(ctx, record.RangeKey(id, c.rng), bytes.NewReader(record.Encode(res)))
}

// table cuts the range into w, its shard table. It also sets the totals and
// writes the hash lists.
func (c *cut) table(ctx context.Context, w io.Writer) error {
	opts := shardtable.CutObject(c.manifest.Config.Shard.Items, c.source.Size)
	opts.Input, opts.Role = uint32(c.input), c.source.Role
	var err error
	if c.manifest.HasOutput(c.source.Role) {
		if c.shardOf, err = c.planner.shardOf(c.manifest, c.input); err != nil {
			return err
		}
	} else { // what the run asks for itself belongs to none of its variants
		opts.Variant = uint32(len(c.manifest.Config.Variants))
	}
	c.roles = nil // the range is cut again if its object has changed its version
	if c.shardOf != nil {
		opts.MaxItems, opts.FillBytes = 1, 0
	} else if c.offset == 0 {
		if opts.Counts, err = c.planner.countsOf(ctx, c.manifest, c.input); err != nil {
			return err
		}
	}
	cutter := shardtable.NewCutter(opts)
	c.parser = dialect.NewParser(dialect.Name(c.manifest.Dialect))
	c.settings = dialect.NewSettings(c.manifest.Config.Request, config.Request{})
	c.ids, c.requests = hashes{of: record.HashIDs, cut: c}, hashes{of: record.HashRequests, cut: c}
	index := c.offset / record.RangeSize
	scan := shardtable.RangeScanOptions(index)
	c.next = scan.Offset
	open := func() (io.ReadCloser, error) {
		return input.OpenPinned(ctx, c.planner.Blobs, c.source.Key,
			blob.GetOptions{Version: c.source.Version, Offset: scan.Offset})
	}
	r, err := open()
	if fault.ClassOf(err) == fault.InputChanged {
		if c.source, err = c.planner.pinAgain(ctx, c.manifest, c.input); err == nil {
			r, err = open()
		}
	}
	if err != nil {
		return err
	}
	defer r.Close()
	out := shardtable.NewWriter(w, shardtable.Header{Input: opts.Input, Range: uint32(index),
		Start: uint64(c.offset), End: uint64(c.limit), MaxItems: uint32(opts.MaxItems), MaxBytes: uint32(opts.MaxBytes)})
	lines := cutter.Scanner(r, scan)
	err = c.cutLines(ctx, lines, cutter, out)
	c.totals = cutter.Totals()
	return err
}

// checkEvery is how many lines are cut between checks of the context.
const checkEvery = 1024

// cutLines cuts all lines, and hashes those that are items.
func (c *cut) cutLines(ctx context.Context, lines *jsonl.Scanner, cutter *shardtable.Cutter,
	out *shardtable.Writer) error {
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
		c.next = l.Offset + l.Length
		if row, ok := cutter.Add(l); ok {
			if err := out.Append(row); err != nil {
				return err
			}
		}
		if l.Blank || l.TooLong {
			continue
		}
		if c.shardOf != nil {
			a, err := c.shardOf(c.manifest, l.Bytes)
			if err != nil {
				return err
			}
			cutter.Mark(a.Chain, a.Variant, a.Role)
			c.roles = append(c.roles, make([]run.RolePlan, max(0, int(a.Role)+1-len(c.roles)))...)
			c.roles[a.Role].Shards++
			c.roles[a.Role].Items++
		}
		if err := c.hash(ctx, l.Bytes, cutter.Totals()); err != nil {
			return err
		}
	}
	if row, ok := cutter.Flush(); ok {
		if err := out.Append(row); err != nil {
			return err
		}
	}
	if err := errors.Join(c.ids.flush(ctx), c.requests.flush(ctx)); err != nil {
		return err
	}
	return out.Flush()
}

// hash adds the line, which is the last that was cut, to the hash lists: by its
// own id and, if identical requests are asked once, by its request. What the run asks
// for itself is compared with nothing: its rows stand in no file, and another model
// may answer it.
func (c *cut) hash(ctx context.Context, line []byte, t shardtable.Totals) error {
	if !c.manifest.HasOutput(c.source.Role) {
		return nil
	}
	at := shardtable.Place{Range: uint32(c.rng), Item: uint32(t.Items - 1), Line: uint32(t.Lines - 1)}
	settings := c.manifest.Config
	it, hasID, err := c.parse(line)
	if it == nil {
		return nil
	}
	if err == nil {
		err = it.CheckModel(c.manifest.ModelURI, settings.Request)
	}
	if hasID {
		_, targetErr := c.settings.Target(it)
		key := c.parser.IDKey(it, err == nil && targetErr == nil)
		if err := c.ids.add(ctx, shardtable.HashID(key), at); err != nil {
			return err
		}
	}
	if !settings.Dedupe.Enabled || err != nil || it.Sampled(settings.Sampling) && !settings.Dedupe.Sampled {
		return nil // it is an error row, or asked for each line
	}
	return c.requests.add(ctx, shardtable.HashOf(it.RequestDigest()), at)
}

// parse parses a line as far as it must be hashed. The item is nil if nothing of it must.
func (c *cut) parse(line []byte) (it *dialect.Item, hasID bool, err error) {
	if !c.manifest.Config.Dedupe.Enabled {
		return c.parser.ParseWithID(line)
	}
	it, err = c.parser.Parse(line)
	return it, it.HasID, err
}

// hashes writes the hashes of one kind of a range, in segments. At most one
// segment is in memory.
type hashes struct {
	cut   *cut
	of    record.HashKind
	list  shardtable.HashList
	total int
}

func (h *hashes) add(ctx context.Context, sum shardtable.Hash, at shardtable.Place) error {
	h.list.Add(sum, at)
	h.total++
	if h.list.Full() {
		return h.flush(ctx)
	}
	return nil
}

// flush writes the segment in memory.
func (h *hashes) flush(ctx context.Context) error {
	if h.list.Len() == 0 {
		return nil
	}
	key := record.PlanHashesKey(h.cut.manifest.Run, h.cut.rng, (h.total-1)/shardtable.SegmentEntries, h.of)
	err := h.cut.planner.stream(ctx, key, h.list.Write)
	h.list.Reset()
	return err
}
