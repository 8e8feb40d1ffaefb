package host

import (
	"context"
	"encoding/json"
	"errors"

	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// maxConflicts bounds how often Update retries. Every conflict means that another
// writer made progress.
const maxConflicts = 64

// Load reads the document at key into v. If it does not exist, found is false and v
// is unchanged.
func Load(ctx context.Context, docs document.Store, key string,
	v any) (rev document.Revision, found bool, err error) {
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

// Save writes v as the document at key if its revision is still rev, and returns the
// new revision. With rev "" it creates the document. Otherwise it is a Conflict.
func Save(ctx context.Context, docs document.Store, key string, v any,
	rev document.Revision) (document.Revision, error) {
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

// Update changes a document by compare-and-swap: it loads the document, calls change
// for the new value, and saves that. After a Conflict it starts again, and calls
// change again. For a document that does not exist, change gets the zero value and
// false. It returns false to leave the document unchanged. Update returns the present
// value of the document.
func Update[T any](ctx context.Context, docs document.Store, key string,
	change func(cur T, found bool) (T, bool, error)) (T, error) {
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
	return zero, fault.New(fault.Unavailable, "change document %s: another writer was first %d times in a row",
		key, maxConflicts)
}

// Each calls yield with every document under prefix, decoded, in key order. It skips
// documents that cannot be decoded, and returns their errors at the end. An error of
// yield stops it.
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
