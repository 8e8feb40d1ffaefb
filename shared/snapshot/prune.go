package snapshot

import (
	"context"
	"errors"
	"slices"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Retention selects the snapshots of a run that Prune keeps: those that meet at least one
// of the conditions.
type Retention struct {
	KeepLast    int           // that many of the newest
	KeepLabeled bool          // those with a label
	MaxAge      time.Duration // those that are not older; 0: age is not a condition
}

// expired returns the snapshots that r does not keep. all is sorted, the newest first.
func (r Retention) expired(all []Snapshot, now time.Time) []Snapshot {
	var out []Snapshot
	for i, s := range all {
		switch {
		case i < r.KeepLast, r.KeepLabeled && s.Label != "", r.MaxAge > 0 && now.Sub(s.CreatedAt) <= r.MaxAge:
		default:
			out = append(out, s)
		}
	}
	return out
}

// Expired returns the run's snapshots that Prune removes, the newest first.
func (s Store) Expired(ctx context.Context, run identity.RunID, r Retention) ([]Snapshot, error) {
	if !run.Valid() {
		return nil, fault.New(fault.Invalid, "prune: %.64q is not a run id", run)
	}
	if r.KeepLast < 0 || r.MaxAge < 0 {
		return nil, fault.New(fault.Invalid, "prune: the number and the age of snapshots to keep must not be negative")
	}
	all, err := s.List(ctx, Filter{Run: run})
	return r.expired(all, s.Clock.Now()), err
}

// Prune removes the run's snapshots that the retention does not keep, and the bytes
// that no snapshot of any run needs any longer. It continues after an error, and
// returns the removed snapshots and all errors.
func (s Store) Prune(ctx context.Context, run identity.RunID, r Retention) ([]Snapshot, error) {
	expired, err := s.Expired(ctx, run, r)
	if err != nil {
		return nil, err
	}
	var removed []Snapshot
	var bad error
	for _, v := range expired {
		gone, err := s.removeSnapshot(ctx, v)
		if gone {
			removed = append(removed, v)
		}
		bad = errors.Join(bad, fault.Wrap(err, "prune snapshot %s of run %s", v.ID, run))
	}
	return removed, errors.Join(bad, s.sweep(ctx, run))
}

// removeSnapshot deletes the document of a listed snapshot, unless it was saved again
// since, and the bytes that only it needs.
func (s Store) removeSnapshot(ctx context.Context, v Snapshot) (gone bool, err error) {
	now, rev, err := s.load(ctx, v.Run, v.ID)
	if err == nil && now.Save == v.Save {
		err = s.Docs.Delete(ctx, Key(v.Run, v.ID), rev)
		gone = err == nil
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		return gone, err
	}
	return gone, s.removeReference(ctx, v.ID, v.Save) // another process may have crashed just before this
}

// staleSaveAge is the age from which an unfinished save counts as crashed.
const staleSaveAge = 24 * time.Hour

// sweep cleans up after processes that crashed between two writes: it removes objects
// of saves of the run without a snapshot, and completes deletions.
func (s Store) sweep(ctx context.Context, run identity.RunID) error {
	var bad error
	for d, err := range document.All(ctx, s.Docs, contentPrefix) {
		if err != nil {
			return errors.Join(bad, fault.Wrap(err, "search unfinished saves"))
		}
		var c content
		if err := record.Decode(d.Value, &c, "document "+d.Key); err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		bad = errors.Join(bad, s.sweepContent(ctx, run, d.Key[len(contentPrefix):], c))
	}
	return bad
}

// sweepContent cleans up one content.
func (s Store) sweepContent(ctx context.Context, run identity.RunID, id string, c content) error {
	old := func(n reference) bool { return n.Run == run && s.Clock.Now().Sub(n.At) > staleSaveAge }
	if len(c.Needs) > 0 && !slices.ContainsFunc(c.Needs, old) {
		return nil
	}
	var snap Snapshot
	_, found, err := host.Load(ctx, s.Docs, Key(run, id), &snap)
	if err != nil {
		return err
	}
	return s.drop(ctx, id, func(n reference) bool { return old(n) && !(found && n.Save == snap.Save) })
}
