package plan

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// mergeOrRecord merges, and records a damaged plan as a problem that ends the
// run: repeating the merge would fail for ever.
func (p *Planner) mergeOrRecord(ctx context.Context, id identity.RunID) error {
	err := p.mergeLeased(ctx, id)
	if !fault.Is(err, fault.Corrupt) {
		return err
	}
	_, err = p.recordProblem(ctx, id, &fault.Error{Kind: fault.Corrupt, Err: err,
		Remedy: "what is kept of the plan is damaged: submit the file again"})
	return err
}

// mergeLeased merges while it holds the run's lease. It returns at once if
// another call holds the lease.
func (p *Planner) mergeLeased(ctx context.Context, id identity.RunID) error {
	_, late := p.timer(ctx, 4)
	for {
		release, ok, err := p.acquireLease(ctx, id, &p.merging)
		if err != nil || !ok {
			return err
		}
		inTime, err := p.merge(ctx, id, late)
		release()
		if err != nil || !inTime {
			return err
		}
		// A call that planned the next range meanwhile may have found the lease
		// taken, and returned.
		if more, err := p.mergeable(ctx, id); err != nil || !more {
			return err
		}
	}
}

// mergeable reports whether the next range is planned.
func (p *Planner) mergeable(ctx context.Context, id identity.RunID) (bool, error) {
	var doc record.Plan
	_, found, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc)
	if err != nil || !found || doc.AllMerged() {
		return false, err
	}
	_, err = p.Blobs.Stat(ctx, record.RangeKey(id, doc.Merged), "")
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// merge adds planned ranges to the index, in order, until the next one is not
// planned yet. inTime is false if the call's time ended first.
func (p *Planner) merge(ctx context.Context, id identity.RunID,
	late func(next time.Duration) bool) (inTime bool, err error) {
	most := math.MaxInt
	for took := time.Duration(0); !late(3 * took); { // a step takes at most about twice as long as the last
		began := p.Clock.Now()
		var doc record.Plan
		rev, found, err := host.Load(ctx, p.Docs, record.PlanKey(id), &doc)
		if err != nil || !found || doc.AllMerged() {
			return true, err
		}
		results, err := p.planned(ctx, id, doc, most)
		if err != nil || len(results) == 0 {
			return true, err // the call that plans the next range merges it
		}
		next, err := p.take(ctx, id, doc, results)
		if errors.Is(err, errTooManyRepeats) {
			most = repeatsAtOnce - 1 // fewer hashes cannot have too many repeats
			continue
		}
		if err != nil {
			return true, err
		}
		_, err = host.Save(ctx, p.Docs, record.PlanKey(id), next, rev)
		if fault.Is(err, fault.Conflict) {
			continue // another merge was faster
		}
		if err != nil {
			return true, err
		}
		if err := p.Send(ctx, host.CoordinateQueue, events.PlanAdvanced{Run: string(id)}); err != nil {
			return true, err
		}
		took = p.Clock.Now().Sub(began)
	}
	return false, nil
}

// Bounds of the ranges that one step merges. Most of a step's cost is reading
// the lists of all earlier ranges, so a step takes all ranges that wait; but at
// most as many as are merged already, so that the first ranges are dispatched
// early and no step takes much longer than the one before.
const (
	atOnceRanges = 256
	atOnceLists  = 256     // lists read side by side: 14 KiB and a connection each
	atOnceItems  = 1 << 26 // one bit each
	atOnce       = 16      // concurrent requests
)

// planned returns the results of the next ranges that are planned and fit into
// one step: at least one if it is planned, and at most as many as have that many
// hashes of either kind.
func (p *Planner) planned(ctx context.Context, id identity.RunID, doc record.Plan,
	hashes int) (out []record.RangeResult, err error) {
	most := min(max(1, doc.Merged), doc.Total-doc.Merged, atOnceRanges)
	var lists, ids, requests int
	var items uint64
	for len(out) < most {
		asked := make([]record.RangeResult, min(max(1, len(out)), most-len(out), atOnce))
		there := make([]bool, len(asked))
		group, ctx := errgroup.WithContext(ctx)
		for i := range asked {
			group.Go(func() error {
				err := input.ReadJSON(ctx, p.Blobs, record.RangeKey(id, doc.Merged+len(out)+i), &asked[i])
				if fault.Is(err, fault.NotFound) {
					return nil
				}
				there[i] = true
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for i, res := range asked {
			lists += max(shardtable.Segments(res.IDs), shardtable.Segments(res.Requests))
			ids, requests, items = ids+res.IDs, requests+res.Requests, items+res.Items
			fit := lists <= atOnceLists && items <= atOnceItems && max(ids, requests) <= hashes
			if !there[i] || !fit && len(out) > 0 {
				return out, nil
			}
			out = append(out, res)
		}
	}
	return out, nil
}

// take writes the repeats and index entries of the next ranges, and returns the
// plan that includes them.
func (p *Planner) take(ctx context.Context, id identity.RunID, doc record.Plan,
	results []record.RangeResult) (record.Plan, error) {
	ids := comparison{planner: p, id: id, of: record.HashIDs, from: doc.Merged, lists: doc.IDs}
	requests := comparison{planner: p, id: id, of: record.HashRequests, from: doc.Merged, lists: doc.Requests}
	entries := make([]record.IndexEntry, len(results))
	repeated := items{from: doc.Merged}
	for i, res := range results {
		at, err := p.inputs.Locate(ctx, id, doc, doc.Merged)
		if err != nil {
			return doc, err
		}
		if at.Offset == 0 {
			doc.Lines = 0 // the first range of another input
		}
		entries[i] = record.IndexEntry{Range: doc.Merged, Input: at.Input, FirstShard: doc.Shards, Shards: res.Shards,
			FirstItem: doc.Items, Items: res.Items, FirstLine: doc.Lines, Lines: res.Lines}
		doc.AddRange(at.Source.Role, res)
		ids.counts, requests.counts = append(ids.counts, res.IDs), append(requests.counts, res.Requests)
		if res.Requests > 0 { // otherwise the set is never read
			repeated.addRange(res.Items)
		} else {
			repeated.addRange(0)
		}
	}
	// An item whose id is taken is an error row: neither a copy nor an original.
	ids.onRepeat, requests.skip = repeated.add, repeated.has
	var duplicates, copies *repeats
	var err error
	if doc.IDs, duplicates, err = ids.run(ctx); err == nil {
		doc.Requests, copies, err = requests.run(ctx)
	}
	if err == nil {
		err = p.putEntries(ctx, id, entries, func(ctx context.Context, e *record.IndexEntry) error {
			e.Duplicates, e.Copies = duplicates.count(e.Range), copies.count(e.Range)
			return errors.Join(ids.write(ctx, e.Range, duplicates), requests.write(ctx, e.Range, copies))
		})
	}
	if fault.Is(err, fault.NotFound) { // NotFound would mean that a range is not planned yet
		err = fault.WithKind(fault.Corrupt, err, "a list of hashes is gone")
	}
	return doc, fault.Wrap(err, "compare the ranges %d to %d of run %s with those before them",
		entries[0].Range, doc.Merged, id)
}

// putEntries writes index entries. complete sets an entry's counts and writes
// the objects that it counts, before the entry itself is written.
func (p *Planner) putEntries(ctx context.Context, id identity.RunID, entries []record.IndexEntry,
	complete func(context.Context, *record.IndexEntry) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, e := range entries {
		group.Go(func() error {
			if err := complete(ctx, &e); err != nil {
				return err
			}
			return p.put(ctx, record.IndexKey(id, e.Range), bytes.NewReader(record.Encode(e)))
		})
	}
	return group.Wait()
}
