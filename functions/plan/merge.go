package plan

import (
	"bytes"
	"context"

	"rollout/events"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// mergeInTurn merges, unless somebody else does.
func (p *Planner) mergeInTurn(ctx context.Context, id identity.RunID) error {
	_, late := p.timer(ctx, 4)
	for {
		giveBack, ok, err := p.turn(ctx, id)
		if err != nil || !ok {
			return err
		}
		err = p.merge(ctx, id, late)
		giveBack()
		if err != nil || !p.turns || late() {
			return err
		}
		// Who planned the next range a moment ago may have found the turn taken.
		if more, err := p.mergeable(ctx, id); err != nil || !more {
			return err
		}
	}
}

// mergeable reports whether the next range is planned.
func (p *Planner) mergeable(ctx context.Context, id identity.RunID) (bool, error) {
	var doc record.Plan
	_, found, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc)
	if err != nil || !found || doc.Complete() {
		return false, err
	}
	_, err = p.Blobs.Stat(ctx, record.RangeKey(id, doc.Merged), "")
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// merge takes planned ranges into the index, in order, as far as they are
// there and there is time.
func (p *Planner) merge(ctx context.Context, id identity.RunID, late func() bool) error {
	for !late() {
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
	return nil
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
	var err error
	if doc, err = p.compare(ctx, id, doc, res, &e); err != nil {
		if fault.Is(err, fault.NotFound) { // it would pass for a range to come
			err = fault.As(fault.Corrupt, err, "a list of hashes is gone")
		}
		return doc, fault.Wrap(err, "compare range %d of run %s with those before it", k, id)
	}
	if err := p.put(ctx, record.IndexKey(id, k), bytes.NewReader(record.Encode(e))); err != nil {
		return doc, err
	}
	doc.Merged, doc.Shards, doc.Items, doc.Lines = k+1, doc.Shards+res.Shards, doc.Items+res.Items, doc.Lines+res.Lines
	return doc, nil
}

// compare finds the items of a planned range that repeat an earlier one of the
// run. An item whose id is taken is an error: nobody's copy, nobody's original.
func (p *Planner) compare(ctx context.Context, id identity.RunID, doc record.Plan, res record.RangeResult, e *record.IndexEntry) (record.Plan, error) {
	ids := comparison{planner: p, id: id, of: record.IDs, rng: e.Range, count: res.IDs, lists: doc.IDs}
	if res.Requests > 0 {
		ids.seen = newItems(res.Items)
	}
	var err error
	if doc.IDs, e.Duplicates, err = ids.run(ctx); err != nil {
		return doc, err
	}
	requests := comparison{planner: p, id: id, of: record.Requests, rng: e.Range, count: res.Requests, lists: doc.Requests, skip: ids.seen.has}
	doc.Requests, e.Copies, err = requests.run(ctx)
	return doc, err
}

// items is a set of a range's items; there are no others.
type items []uint64

func newItems(n uint64) items { return make(items, (n+63)/64) }

func (s items) add(i uint32) {
	if int(i/64) < len(s) {
		s[i/64] |= 1 << (i % 64)
	}
}

func (s items) has(i uint32) bool { return int(i/64) < len(s) && s[i/64]&(1<<(i%64)) != 0 }
