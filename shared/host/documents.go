package host

import (
	"context"
	"encoding/json"
	"errors"

	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// maxConflicts bounds how often a change is decided anew. Every conflict means
// that somebody else made progress.
const maxConflicts = 64

// Load reads the document into v; found is false, and v untouched, if it is
// absent.
func Load(ctx context.Context, docs document.Store, key string, v any) (rev document.Revision, found bool, err error) {
	d, err := docs.Get(ctx, key)
	if fault.Is(err, fault.NotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fault.Wrap(err, "load %s", key)
	}
	if err := record.Decode(d.Value, v, "document "+key); err != nil {
		return "", false, err
	}
	return d.Revision, true, nil
}

// Save writes v if the document's revision is still rev; "" creates it.
func Save(ctx context.Context, docs document.Store, key string, v any, rev document.Revision) (document.Revision, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fault.WithKind(fault.Internal, err, "encode document %s", key)
	}
	if rev == "" {
		rev, err = docs.Create(ctx, key, b)
	} else {
		rev, err = docs.Replace(ctx, key, b, rev)
	}
	return rev, fault.Wrap(err, "save %s", key)
}

// Update loads a document, lets change decide on its new value and saves that,
// again from the start whenever somebody else wrote first. change gets the
// zero value and false for an absent document; it returns false to leave the
// document as it is. Update returns the document's value as it now is.
func Update[T any](ctx context.Context, docs document.Store, key string, change func(cur T, found bool) (T, bool, error)) (T, error) {
	for range maxConflicts {
		var cur T
		rev, found, err := Load(ctx, docs, key, &cur)
		if err != nil {
			return cur, err
		}
		next, write, err := change(cur, found)
		if err != nil || !write {
			return cur, err
		}
		_, err = Save(ctx, docs, key, next, rev)
		if err == nil {
			return next, nil
		}
		if !fault.Is(err, fault.Conflict) {
			return cur, err
		}
	}
	var zero T
	return zero, fault.New(fault.Unavailable, "change document %s: somebody else wrote first %d times", key, maxConflicts)
}

// Each calls yield for every document under prefix, decoded, in key order. A
// document that can't be decoded hides no other: its error is returned at the
// end.
func Each[T any](ctx context.Context, docs document.Store, prefix string, yield func(v T) error) error {
	var bad error
	for d, err := range document.All(ctx, docs, prefix) {
		if err != nil {
			return errors.Join(fault.Wrap(err, "list %s", prefix), bad)
		}
		var v T
		if err := record.Decode(d.Value, &v, "document "+d.Key); err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		if err := yield(v); err != nil {
			return errors.Join(err, bad)
		}
	}
	return bad
}
