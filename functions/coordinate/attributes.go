package coordinate

import (
	"context"
	"sync"

	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/shardtable"
)

// Attributes are cached in pages of pageShards shards, at most maxPages of them: 4 MiB
// in all.
const (
	pageShards = 256
	maxPages   = 1024
)

// attributes reads what dispatch asks of shards, from the shard tables. Tables are
// immutable, so that cached pages stay valid. It is safe for concurrent use.
type attributes struct {
	index *input.Index

	mu    sync.Mutex
	pages map[pageOf]schedule.Page
}

type pageOf struct {
	run  identity.RunID
	page int
}

func newAttributes(ix *input.Index) *attributes {
	return &attributes{index: ix, pages: map[pageOf]schedule.Page{}}
}

// of returns the pages that hold the attributes of the ranges, which are sorted and
// disjoint. planned is how many shards are planned.
func (a *attributes) of(ctx context.Context, id identity.RunID, ranges []interval.Range,
	planned int) (out schedule.Pages, err error) {
	next := 0
	for _, r := range ranges {
		for k := max(next, r.Lo/pageShards); k*pageShards < r.Hi; k++ {
			p, err := a.page(ctx, id, k, planned)
			if err != nil {
				return nil, fault.Wrap(err, "read the attributes of the shards of run %s", id)
			}
			out, next = append(out, p), k+1
		}
	}
	return out, nil
}

// page returns a page. It caches only whole ones: the last one of a plan may grow.
func (a *attributes) page(ctx context.Context, id identity.RunID, page, planned int) (schedule.Page, error) {
	k := pageOf{id, page}
	a.mu.Lock()
	p, ok := a.pages[k]
	a.mu.Unlock()
	if ok {
		return p, nil
	}
	p.First = page * pageShards
	last := min(p.First+pageShards, planned)
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
	if len(p.Rows) < pageShards {
		return p, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pages) >= maxPages {
		for other := range a.pages {
			delete(a.pages, other)
			break
		}
	}
	a.pages[k] = p
	return p, nil
}

func attributesOf(r shardtable.Row) schedule.Attributes {
	return schedule.Attributes{Chain: r.Chain, Variant: r.Variant, Role: r.Role, Items: r.Items}
}
