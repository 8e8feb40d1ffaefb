package snapshot

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// Filter selects snapshots. The zero value selects all.
type Filter struct {
	Run   identity.RunID // "": every run
	Kind  Kind           // "": every kind
	Label string         // a part of the label
	Limit int            // only that many of the newest; 0: all
}

// List returns the selected snapshots, the newest first.
func (s Store) List(ctx context.Context, f Filter) ([]Snapshot, error) {
	under := prefix
	if f.Run != "" {
		under += string(f.Run) + "/"
	}
	var out []Snapshot
	err := host.Each(ctx, s.Docs, under, func(snap Snapshot) error {
		if (f.Kind == "" || f.Kind == snap.Kind) && strings.Contains(snap.Label, f.Label) {
			out = append(out, snap)
		}
		return nil
	})
	if err != nil {
		return nil, fault.Wrap(err, "list snapshots")
	}
	slices.SortStableFunc(out, func(a, b Snapshot) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Save, a.Save))
	})
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	return out, nil
}

// Get returns the run's snapshot with that id, or NotFound.
func (s Store) Get(ctx context.Context, run identity.RunID, id string) (Snapshot, error) {
	snap, _, err := s.load(ctx, run, id)
	return snap, err
}

// MinPrefix is how many digits of an id Find needs at least.
const MinPrefix = 6

// Find returns the snapshot whose id is or begins with id. If several runs have a
// snapshot of that content, it returns the one that was saved first. Without a match it
// returns NotFound, and with several Invalid.
func (s Store) Find(ctx context.Context, id string) (Snapshot, error) {
	id = strings.ToLower(id)
	missing := fault.New(fault.NotFound, "snapshot not found: %.64s", id)
	if len(id) < MinPrefix || len(id) > 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return Snapshot{}, missing
	}
	// The documents of contents are listed in the order of ids.
	page, err := s.Docs.List(ctx, contentPrefix+id, "", 2)
	if err != nil {
		return Snapshot{}, fault.Wrap(err, "search snapshot %s", id)
	}
	if len(page) > 1 {
		return Snapshot{}, &fault.Error{Kind: fault.Invalid, Remedy: "give more digits of the id",
			Err: fault.New(fault.Invalid, "several snapshots begin with %s", id)}
	}
	for _, d := range page {
		snap, found, err := s.firstSave(ctx, d)
		if err != nil || found {
			return snap, err
		}
	}
	return Snapshot{}, missing
}

// firstSave returns the first existing snapshot among the saves that a content's
// document names.
func (s Store) firstSave(ctx context.Context, d document.Doc) (Snapshot, bool, error) {
	var c content
	id := strings.TrimPrefix(d.Key, contentPrefix)
	if _, found, err := host.Load(ctx, s.Docs, d.Key, &c); err != nil || !found {
		return Snapshot{}, false, err
	}
	for _, n := range c.Needs {
		snap, _, err := s.load(ctx, n.Run, id)
		if err == nil || !fault.Is(err, fault.NotFound) {
			return snap, err == nil, err
		}
	}
	return Snapshot{}, false, nil
}
