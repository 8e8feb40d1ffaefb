package plan

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// grow appends what the run's kind makes of the last results to a plan whose ranges
// are all merged, or completes the plan. It returns the plan as it is if items have
// no result yet, or the run ends. It may be called at any time, by several calls at
// once, and needs no lease: coordinate asks once, and the lease of a call that crashed
// would delay the run.
func (p *Planner) grow(ctx context.Context, m record.Manifest, doc record.Plan) (record.Plan, error) {
	due, err := p.growthDue(ctx, m.Run, doc)
	if err != nil || !due {
		return doc, err
	}
	k, err := p.opts.Kinds.Of(m.Kind)
	if err != nil {
		return doc, err
	}
	next := record.Appended{Input: doc.Sources(), First: doc.Total}
	if k.Appends == nil || next.Input < m.InputCount()+k.Appends(m.Config) {
		if next, err = p.appended(ctx, m, k, doc); err != nil {
			return doc, fault.Wrap(err, "append to the plan of run %s", m.Run)
		}
	}
	change := func(cur record.Plan, _ bool) (record.Plan, bool, error) {
		if cur.Sources() != next.Input || !cur.AllMerged() || !cur.Growing {
			return cur, false, nil // another call was faster
		}
		if next.Key == "" || k.Appends == nil && next.Size == 0 {
			cur.Growing = false
			return cur, true, nil
		}
		cur.Appended, cur.Total = &next, cur.Total+next.Count
		// A plan that grows by a known number of objects is complete with the last one, also in a
		// run that ends before the results of that are in.
		cur.Growing = k.Appends == nil || next.Input+1 < m.InputCount()+k.Appends(m.Config)
		return cur, true, nil
	}
	return host.Update(ctx, p.Docs, record.PlanKey(m.Run), change)
}

// growthDue reports whether coordinate has seen that all shards of the plan are done,
// and the run does not end.
func (p *Planner) growthDue(ctx context.Context, id identity.RunID, doc record.Plan) (bool, error) {
	s, err := p.stateOf(ctx, id)
	ends := s.Phase == run.Ending || s.Phase == run.Finalizing || s.Phase.Ended()
	return err == nil && !ends && s.Done.Frontier() >= doc.Shards, err
}

// stateOf returns the state of a run.
func (p *Planner) stateOf(ctx context.Context, id identity.RunID) (run.State, error) {
	s := run.New(id)
	_, _, err := host.Load(ctx, p.Docs, record.CoordinatorKey(id), &s)
	return s, err
}

// appended returns the object that follows the plan's last one, and creates it unless
// it exists. An object that exists is the result of an earlier call with the same
// results, and stands.
func (p *Planner) appended(ctx context.Context, m record.Manifest, k kind.Kind,
	doc record.Plan) (next record.Appended, err error) {
	next.Input, next.First = doc.Sources(), doc.Total
	next.Key = record.AppendedKey(m.Run, next.Input)
	appended := kind.Appended{Blobs: p.Blobs, Manifest: m, Input: next.Input}
	find := p.lastResults
	switch {
	case k.Appends != nil && k.OwnLines:
		find = p.ownResults(m)
	case k.Appends != nil:
		find = p.inputResults
	}
	from, err := find(ctx, m.Run, doc)
	if err != nil {
		return next, err
	}
	if next.MadeFrom, err = from.digest(ctx); err != nil {
		return next, err
	}
	info, err := p.Blobs.Stat(ctx, next.Key, "")
	if fault.Is(err, fault.NotFound) {
		g := kind.Growth{Appended: appended, Answers: from.answers(ctx), Items: from.items(ctx, m)}
		if g.Source, err = p.inputs.Source(ctx, m.Run, doc, 0); err != nil {
			return next, err
		}
		if k.OwnLines && next.Input == m.InputCount() { // the kind reads it, and it may have been moved since
			if g.Source.Version, _, err = p.inputs.PlannedVersion(ctx, m, doc, 0); err != nil {
				return next, err
			}
		}
		if err := p.stream(ctx, next.Key, func(w io.Writer) error { return k.Grow(ctx, g, w) }); err != nil {
			return next, err
		}
		info, err = p.Blobs.Stat(ctx, next.Key, "")
	}
	if err != nil {
		return next, err
	}
	next.Version, next.Size, next.Count = info.Version, info.Size, record.RangeCount(info.Size)
	if k.RoleOf != nil && next.Size > 0 {
		role, err := k.RoleOf(ctx, appended)
		if err == nil {
			next.Role, err = m.RoleNumber(role)
		}
		if err != nil {
			return next, err
		}
	}
	p.Log.InfoContext(ctx, "plan grows", observe.KeyRun, m.Run, "input", next.Input, "role", next.Role,
		"bytes", next.Size)
	return next, nil
}

// countsOf returns how many items the first shards of an input have, where its kind says
// so.
func (p *Planner) countsOf(ctx context.Context, m record.Manifest, input int) ([]int, error) {
	k, err := p.opts.Kinds.Of(m.Kind)
	if err != nil || k.CutOf == nil || input < m.InputCount() {
		return nil, err
	}
	counts, err := k.CutOf(ctx, kind.Appended{Blobs: p.Blobs, Manifest: m, Input: input})
	if err == nil && slices.ContainsFunc(counts, func(n int) bool { return n < 1 }) {
		err = fault.New(fault.Internal, "the kind %q cuts a shard without an item", k.Name)
	}
	return counts, err
}

// shardOf is Kind.ShardOf.
type shardOf = func(record.Manifest, []byte) (schedule.Attributes, error)

// shardOf returns what makes each line of an input a shard; nil if its kind does not say so.
func (p *Planner) shardOf(m record.Manifest, input int) (shardOf, error) {
	k, err := p.opts.Kinds.Of(m.Kind)
	if err != nil || input < m.InputCount() {
		return nil, err
	}
	return k.ShardOf, nil
}

// results are the results of the shards from lo to hi of a run, which are all done.
// Shards that were never sent, because their variant was pruned, have none.
type results struct {
	*Planner
	run    identity.RunID
	lo, hi int
	index  *input.Index
}

func (p *Planner) results(id identity.RunID, lo, hi int) results {
	return results{Planner: p, run: id, lo: lo, hi: hi, index: input.NewIndex(p.Blobs, p.Docs)}
}

// lastResults returns the results of what was planned last.
func (p *Planner) lastResults(ctx context.Context, id identity.RunID, doc record.Plan) (results, error) {
	r := p.results(id, doc.Shards, doc.Shards)
	first := doc.LastFirst()
	if first == doc.Merged { // an input without a line has no range
		return r, nil
	}
	var err error
	r.lo, err = p.firstShard(ctx, id, first)
	return r, err
}

// inputResults returns the results of the run's inputs.
func (p *Planner) inputResults(ctx context.Context, id identity.RunID, doc record.Plan) (results, error) {
	r := p.results(id, 0, doc.Shards)
	ranges := doc.InputRanges()
	if ranges == doc.Merged { // nothing is appended
		return r, nil
	}
	var err error
	r.hi, err = p.firstShard(ctx, id, ranges)
	return r, err
}

// ownResults returns the results of the run's own lines: of all that is planned before the lines of
// its first judge that has some.
func (p *Planner) ownResults(m record.Manifest) func(context.Context, identity.RunID, record.Plan) (results, error) {
	return func(ctx context.Context, id identity.RunID, doc record.Plan) (results, error) {
		r := p.results(id, 0, doc.Shards)
		for judge := range m.Config.Judges() {
			at, err := r.index.LocateLine(ctx, id, m.JudgeInput(judge), 1)
			if err == nil {
				r.hi = at.Shard()
				break
			}
			if !fault.Is(err, fault.NotFound) {
				return r, err
			}
		}
		return r, nil
	}
}

// firstShard returns the first shard of a merged range.
func (p *Planner) firstShard(ctx context.Context, id identity.RunID, rng int) (int, error) {
	var e record.IndexEntry
	err := input.ReadJSON(ctx, p.Blobs, record.IndexKey(id, rng), &e)
	if fault.Is(err, fault.NotFound) {
		err = fault.WithKind(fault.Corrupt, err, "the index of a merged range is missing")
	}
	return e.FirstShard, err
}

// docs yields the documents of the shards that have a result, in their order.
func (r results) docs(ctx context.Context) iter.Seq2[shard.Doc, error] {
	return func(yield func(shard.Doc, error) bool) {
		for lo := r.lo; lo < r.hi; lo += document.MaxKeys {
			var keys []string
			for n := lo; n < min(lo+document.MaxKeys, r.hi); n++ {
				keys = append(keys, identity.ShardKey(r.run, n))
			}
			docs, err := r.Docs.GetMany(ctx, keys)
			if err != nil {
				yield(shard.Doc{}, err)
				return
			}
			for i, raw := range docs {
				d, err := committed(raw)
				if fault.Is(err, fault.Unavailable) {
					pruned, problem := r.pruned(ctx, lo+i)
					if pruned {
						continue
					}
					err = cmp.Or(problem, err)
				}
				if !yield(d, err) || err != nil {
					return
				}
			}
		}
	}
}

// pruned reports whether the record of a pruned variant says why a shard, which counts
// as done, has no result.
func (r results) pruned(ctx context.Context, n int) (bool, error) {
	e, row, err := r.index.FindShard(ctx, r.run, n)
	if err != nil {
		return false, err
	}
	rows, err := r.index.Rows(ctx, r.run, e, row, 1)
	if err != nil {
		return false, err
	}
	var p record.PrunedVariant
	err = input.ReadJSON(ctx, r.Blobs, record.PrunedKey(r.run, rows[0].Variant), &p)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && p.Has(n), err
}

// committed decodes the document of a shard that has a result.
func committed(raw document.Doc) (d shard.Doc, err error) {
	if raw.Revision != "" {
		err = record.Decode(raw.Value, &d, "document "+raw.Key)
	}
	if err == nil && (d.State != shard.Done || d.Result == nil) {
		err = fault.New(fault.Unavailable, "the shard of document %s has no result", raw.Key)
	}
	return d, err
}

// digest returns the digest of the digests of all results, in hex.
func (r results) digest(ctx context.Context) (string, error) {
	h := identity.NewHasher()
	for d, err := range r.docs(ctx) {
		if err != nil {
			return "", err
		}
		h.Write([]byte(d.Result.Digest))
	}
	return h.Sum().String(), nil
}

// answers yields the output rows of all results, in the order of the items.
func (r results) answers(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for d, err := range r.docs(ctx) {
			if err == nil {
				more := true
				if more, err = r.rows(ctx, d, yield); err == nil && !more {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// rows yields the output rows of one result, and then checks that the result is what
// was committed. more is false if the caller wants no further row.
func (r results) rows(ctx context.Context, d shard.Doc, yield func([]byte, error) bool) (more bool, err error) {
	ref := *d.Result
	body, _, err := r.Blobs.Get(ctx, ref.Key, blob.GetOptions{})
	if err != nil {
		return false, fault.Wrap(err, "read result %s", ref.Key)
	}
	defer body.Close()
	h := identity.NewHasher()
	all := io.TeeReader(io.LimitReader(body, ref.Length), h)
	lines := bufio.NewReaderSize(io.LimitReader(all, d.OutputLen), 64<<10)
	for {
		row, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(row) == 0 {
			break
		}
		if err != nil {
			return false, fault.Wrap(err, "read result %s", ref.Key)
		}
		if !yield(row, nil) {
			return false, nil
		}
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return false, fault.Wrap(err, "read result %s", ref.Key)
	}
	if h.Sum().String() != ref.Digest {
		return false, fault.New(fault.Corrupt, "result %s does not have the digest that its shard names", ref.Key)
	}
	return true, nil
}
