package plan

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/cuttable"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// merge takes planned ranges into the index, in order, as far as they are
// there.
func (p *Planner) merge(ctx context.Context, id identity.RunID) error {
	for {
		var doc record.Plan
		rev, found, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc)
		if err != nil || !found || doc.Complete() {
			return err
		}
		next, err := p.mergeOne(ctx, id, doc)
		if fault.Is(err, fault.NotFound) {
			return nil // the next range is not planned yet; whoever plans it merges it
		}
		if err != nil {
			return err
		}
		_, err = host.Save(ctx, p.Docs, record.PlanKey(id), next, rev)
		if fault.Is(err, fault.Conflict) {
			continue // another merge was faster
		}
		if err != nil {
			return err
		}
		if err := p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced{Run: string(id)}); err != nil {
			return err
		}
	}
}

// mergeOne writes the index entry of the next range and returns the plan with
// it. NotFound if the range is not planned.
func (p *Planner) mergeOne(ctx context.Context, id identity.RunID, doc record.Plan) (record.Plan, error) {
	k := doc.Merged
	var res record.RangeResult
	if err := input.ReadJSON(ctx, p.Blobs, record.RangeKey(id, k), &res); err != nil {
		return doc, err
	}
	in, offset, _, ok := doc.Locate(k)
	if !ok {
		return doc, fault.New(fault.Corrupt, "plan of run %s has no range %d", id, k)
	}
	if offset == 0 {
		doc.Lines = 0 // the first range of another input
	}
	e := record.IndexEntry{Range: k, Input: in, FirstShard: doc.Shards, Shards: res.Shards,
		FirstItem: doc.Items, Items: res.Items, FirstLine: doc.Lines, Lines: res.Lines}
	if res.IDs > 0 {
		var err error
		if e.Duplicates, err = p.duplicates(ctx, id, doc, e); err != nil {
			if fault.Is(err, fault.NotFound) { // it would pass for a range to come
				err = fault.As(fault.Corrupt, err, "an id list is gone")
			}
			return doc, fault.Wrap(err, "find duplicate ids in range %d of run %s", k, id)
		}
		doc.Explicit = append(doc.Explicit, k)
	}
	_, err := p.Blobs.Put(ctx, record.IndexKey(id, k), bytes.NewReader(record.Encode(e)), blob.PutOptions{CreateOnly: true})
	if err != nil && !fault.Is(err, fault.Conflict) {
		return doc, err
	}
	doc.Merged, doc.Shards, doc.Items, doc.Lines = k+1, doc.Shards+res.Shards, doc.Items+res.Items, doc.Lines+res.Lines
	return doc, nil
}

// listsAtOnce bounds how many id lists are open at the same time.
const listsAtOnce = 64

// duplicates finds the lines of range e whose id an earlier line of the run
// has. Earlier ranges are looked at in groups, in order: the first line wins.
func (p *Planner) duplicates(ctx context.Context, id identity.RunID, doc record.Plan, e record.IndexEntry) ([]record.Duplicate, error) {
	found := map[uint32]record.Duplicate{} // by line
	same := map[uint32]bool{}              // found in the range itself only
	groups := slices.Collect(slices.Chunk(doc.Explicit, listsAtOnce))
	if len(groups) == 0 {
		groups = [][]int{nil}
	}
	for _, g := range groups {
		ds, err := p.duplicatesIn(ctx, id, e.Range, g)
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			if _, known := found[d.Line]; known && (!same[d.Line] || d.List == cuttable.SameList) {
				continue
			}
			first := e
			if d.List != cuttable.SameList {
				if err := input.ReadJSON(ctx, p.Blobs, record.IndexKey(id, g[d.List]), &first); err != nil {
					return nil, err
				}
			}
			same[d.Line] = d.List == cuttable.SameList
			found[d.Line] = record.Duplicate{Line: uint64(d.Line) + 1, FirstInput: first.Input, FirstLine: first.FirstLine + uint64(d.FirstLine) + 1}
		}
	}
	out := make([]record.Duplicate, 0, len(found))
	for _, d := range found {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b record.Duplicate) int { return int(int64(a.Line) - int64(b.Line)) })
	return out, nil
}

// duplicatesIn compares a range's id list with those of earlier ranges.
func (p *Planner) duplicatesIn(ctx context.Context, id identity.RunID, rng int, earlier []int) (ds []cuttable.Duplicate, err error) {
	var open []io.Closer
	defer func() {
		for _, c := range open {
			err = errors.Join(err, c.Close())
		}
	}()
	list := func(k int) (io.Reader, error) {
		r, _, err := p.Blobs.Get(ctx, record.IDListKey(id, k), blob.GetOptions{})
		if err != nil {
			return nil, err
		}
		open = append(open, r)
		return r, nil
	}
	current, err := list(rng)
	if err != nil {
		return nil, err
	}
	var lists []io.Reader
	for _, k := range earlier {
		r, err := list(k)
		if err != nil {
			return nil, err
		}
		lists = append(lists, r)
	}
	return cuttable.Duplicates(current, lists)
}
