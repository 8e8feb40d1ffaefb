package coordinate

import (
	"context"
	"slices"
	"sync"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/shardtable"
)

// Bounds of what is remembered of the shard tables: pages of attributes, 4 MiB in all,
// and blocks of outlines, 16 MiB in all, each of 16,384 shards.
const (
	maxPages  = 1024
	maxBlocks = 256
)

// maxReads is about how many pages one step reads to find where chains go on.
const maxReads = 256

// attributes reads what dispatch asks of shards, from the shard tables. Tables are
// immutable, so that cached pages stay valid. It is safe for concurrent use.
type attributes struct {
	index *input.Index

	mu       sync.Mutex
	pages    map[pageOf]schedule.Page
	outlines map[identity.RunID]schedule.Outline
}

type pageOf struct {
	run  identity.RunID
	page int
}

func newAttributes(ix *input.Index) *attributes {
	return &attributes{index: ix, pages: map[pageOf]schedule.Page{}, outlines: map[identity.RunID]schedule.Outline{}}
}

// observe puts into w the attributes that the next step of the run may look at. Those of a child
// say which shards it keeps from its parent.
func (a *attributes) observe(ctx context.Context, s run.State, child bool, w *run.Observed, r run.Rules,
	evs []run.Event) error {
	planned := max(s.Shards, w.Shards)
	for reads := 0; reads <= maxReads; {
		missing := run.ScanPages(s, *w, r, evs)
		if len(missing) == 0 {
			return nil
		}
		var fresh []schedule.Page
		for _, k := range missing {
			p, cached := a.cached(pageOf{s.Run, k})
			if !cached {
				var err error
				if p, err = a.read(ctx, s.Run, child, k, planned); err != nil {
					return fault.Wrap(err, "read the attributes of the shards of run %s", s.Run)
				}
				fresh = append(fresh, p)
			}
			w.Rows = append(w.Rows, p)
		}
		slices.SortFunc(w.Rows, func(a, b schedule.Page) int { return a.First - b.First })
		w.Outline = a.remember(s.Run, fresh)
		reads += len(fresh)
	}
	return nil
}

func (a *attributes) cached(k pageOf) (schedule.Page, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pages[k]
	return p, ok
}

// read reads a page of shard tables.
func (a *attributes) read(ctx context.Context, id identity.RunID, child bool, page,
	planned int) (schedule.Page, error) {
	p := schedule.Page{First: page * schedule.PageShards}
	last := min(p.First+schedule.PageShards, planned)
	for n := p.First; n < last; n = p.First + len(p.Rows) {
		e, row, err := a.index.FindShard(ctx, id, n)
		if err != nil {
			return p, err
		}
		rows, err := a.index.Rows(ctx, id, e, row, min(last-n, e.Shards-row))
		if err != nil {
			return p, err
		}
		for _, r := range rows {
			p.Rows = append(p.Rows, attributesOf(r))
		}
	}
	for i := range p.Rows {
		if !child {
			break
		}
		in, err := a.index.Inherited(ctx, id, p.First+i)
		if err != nil {
			return p, err
		}
		p.Rows[i].Kept = !in.Touched
	}
	return p, nil
}

// remember caches pages, and returns the outline of the run with them. It caches only
// whole ones: the last one of a plan may grow.
func (a *attributes) remember(id identity.RunID, fresh []schedule.Page) schedule.Outline {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range fresh {
		if len(p.Rows) < schedule.PageShards {
			continue
		}
		if len(a.pages) >= maxPages {
			for other := range a.pages {
				delete(a.pages, other)
				break
			}
		}
		a.pages[pageOf{id, p.First / schedule.PageShards}] = p
	}
	o := a.outlines[id].With(fresh, maxBlocks)
	if o.Blocks() == 0 { // a run of less than a page
		return o
	}
	a.outlines[id] = o
	blocks := 0
	for _, o := range a.outlines {
		blocks += o.Blocks()
	}
	for other, o := range a.outlines {
		if blocks <= maxBlocks {
			break
		}
		if other != id {
			blocks -= o.Blocks()
			delete(a.outlines, other)
		}
	}
	return o
}

func attributesOf(r shardtable.Row) schedule.Attributes {
	return schedule.Attributes{Chain: r.Chain, Variant: r.Variant, Role: r.Role, Items: r.Items}
}
