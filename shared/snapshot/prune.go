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

// Retention says which of a run's snapshots stay.
type Retention struct {
	KeepLast    int           // the newest so many, whatever else holds
	KeepLabeled bool          // those with a label
	MaxAge      time.Duration // those not older; 0 keeps none for its age
}

// victims returns those of the snapshots, the newest first, that go.
func (r Retention) victims(all []Snapshot, now time.Time) []Snapshot {
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

// Expired returns the run's snapshots that Prune would remove, the newest
// first.
func (s Store) Expired(ctx context.Context, run identity.RunID, r Retention) ([]Snapshot, error) {
	if !run.Valid() {
		return nil, fault.New(fault.Invalid, "prune: %.64q is no run id", run)
	}
	if r.KeepLast < 0 || r.MaxAge < 0 {
		return nil, fault.New(fault.Invalid, "prune: neither the number nor the age of snapshots to keep may be negative")
	}
	all, err := s.List(ctx, Filter{Run: run})
	return r.victims(all, s.Clock.Now()), err
}

// Prune removes the run's snapshots that the retention does not keep, and the
// bytes that no snapshot of any run needs any more. It returns those it
// removed, and goes on after an error with the others.
func (s Store) Prune(ctx context.Context, run identity.RunID, r Retention) ([]Snapshot, error) {
	victims, err := s.Expired(ctx, run, r)
	if err != nil {
		return nil, err
	}
	var removed []Snapshot
	var bad error
	for _, v := range victims {
		gone, err := s.removeSnapshot(ctx, v)
		if gone {
			removed = append(removed, v)
		}
		bad = errors.Join(bad, fault.Wrap(err, "prune snapshot %s of run %s", v.ID, run))
	}
	return removed, errors.Join(bad, s.sweep(ctx, run))
}

// removeSnapshot deletes the document as it was listed, and what only it needs.
func (s Store) removeSnapshot(ctx context.Context, v Snapshot) (gone bool, err error) {
	now, rev, err := s.load(ctx, v.Run, v.ID)
	if err == nil && now.Save == v.Save {
		err = s.Docs.Delete(ctx, Key(v.Run, v.ID), rev)
		gone = err == nil
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		return gone, err
	}
	return gone, s.removeReference(ctx, v.ID, v.Save) // also of what somebody else pruned, who may have ended here
}

// staleSaveAge is how old a save is that must have ended one way or the other.
const staleSaveAge = 24 * time.Hour

// sweep ends what processes left that ended between two writes: objects that
// saves of the run needed which made no snapshot, and deletions.
func (s Store) sweep(ctx context.Context, run identity.RunID) error {
	var bad error
	for d, err := range document.All(ctx, s.Docs, contentPrefix) {
		if err != nil {
			return errors.Join(bad, fault.Wrap(err, "look for what unfinished saves left"))
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
