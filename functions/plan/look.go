package plan

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// look decides the look that is due at a run that prunes, and records it in the plan. It returns
// the plan as it is if none is due, or the run ends. It may be called at any time, and by several
// calls at once: the first object of a look stands, and all calls would write the same one.
//
// A look reads the result of each shard between the place of the look before and its own once, and
// writes two objects and the plan document.
func (p *Planner) look(ctx context.Context, m record.Manifest, doc record.Plan) (record.Plan, error) {
	k, err := p.opts.Kinds.Of(m.Kind)
	if err != nil || !k.Prunes(m) {
		return doc, err
	}
	places := k.PlacesOf(m, doc.Shards)
	next := doc.LooksOf(places).Next
	if next == 0 {
		return doc, nil
	}
	s, err := p.stateOf(ctx, m.Run)
	if err != nil || s.Reason != "" || s.Done.Frontier() < next {
		return doc, err
	}
	number := doc.Looks + 1
	key := record.LookKey(m.Run, number)
	var l record.Look
	err = input.ReadJSON(ctx, p.Blobs, key, &l)
	if fault.Is(err, fault.NotFound) {
		l, err = p.decide(ctx, m, k, kind.Look{Number: number, Places: places, Shards: doc.Shards})
	}
	if err != nil {
		return doc, fault.Wrap(err, "look %d at run %s", number, m.Run)
	}
	change := func(cur record.Plan, _ bool) (record.Plan, bool, error) {
		if cur.Looks != number-1 {
			return cur, false, nil // another call was faster
		}
		cur.Looks = number
		cur.Pruned = slices.Concat(cur.Pruned, prunedBy(l, m.Config.Variants))
		return cur, true, nil
	}
	return host.Update(ctx, p.Docs, record.PlanKey(m.Run), change)
}

// decide decides a look and creates its object.
func (p *Planner) decide(ctx context.Context, m record.Manifest, k kind.Kind, at kind.Look) (record.Look, error) {
	from := 0
	if at.Number > 1 {
		from = at.Places[at.Number-2]
	}
	at.Blobs, at.Manifest = p.Blobs, m
	at.Items = p.results(m.Run, from, at.Places[at.Number-1]).ended(ctx)
	l, err := k.Looks.Decide(ctx, at)
	if err != nil {
		return l, err
	}
	p.Log.InfoContext(ctx, "the run is looked at", observe.KeyRun, m.Run, "look", at.Number, "looks", l.Looks,
		"pruned", len(prunedBy(l, m.Config.Variants)))
	_, err = p.Blobs.Put(ctx, record.LookKey(m.Run, at.Number), bytes.NewReader(record.Encode(l)),
		blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		err = input.ReadJSON(ctx, p.Blobs, record.LookKey(m.Run, at.Number), &l)
	}
	return l, err
}

// prunedBy returns the variants that a look has pruned.
func prunedBy(l record.Look, variants []config.Variant) (out []record.PlannedPruning) {
	for _, v := range l.Variants {
		n := slices.IndexFunc(variants, func(of config.Variant) bool { return of.Name == v.Name })
		if v.Pruned && n >= 0 {
			out = append(out, record.PlannedPruning{Variant: uint32(n), From: l.From, Why: v.Why})
		}
	}
	return out
}

// resultsAtOnce is how many results of one item are read at once, each of which is in memory.
const resultsAtOnce = 32

// ended yields how the items of shards of one item ended, without their lines.
func (r results) ended(ctx context.Context) iter.Seq2[kind.Item, error] {
	return func(yield func(kind.Item, error) bool) {
		err := r.inGroups(ctx, resultsAtOnce, func(docs []shard.Doc) bool {
			items := make([]kind.Item, len(docs))
			group, ctx := errgroup.WithContext(ctx)
			for i, d := range docs {
				group.Go(func() (err error) {
					items[i], err = r.end(ctx, d)
					return fault.Wrap(err, "shard %d", d.Shard)
				})
			}
			if err := group.Wait(); err != nil {
				yield(kind.Item{}, err)
				return false
			}
			for _, it := range items {
				if !yield(it, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(kind.Item{}, err)
		}
	}
}

// end reads how the item of a shard ended. A result that is lost, for which finalize writes the
// item as failed, says nothing about it.
func (r results) end(ctx context.Context, d shard.Doc) (kind.Item, error) {
	it := kind.Item{Index: uint64(d.Shard), Attempt: d.Attempt}
	if d.OutputLen == 0 {
		for class := range d.Counts.ByClass {
			it.Class = fault.Class(class)
		}
		return it, nil
	}
	_, err := r.rows(ctx, d, func(row []byte, _ error) bool {
		it.Row = bytes.TrimSuffix(row, []byte("\n"))
		return true
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		r.Log.ErrorContext(ctx, "a result is lost: a look leaves its item out", observe.KeyRun, r.run, "shard", d.Shard,
			observe.KeyError, err)
		return kind.Item{Index: it.Index, Class: fault.Storage, Attempt: it.Attempt}, nil
	}
	return it, err
}
