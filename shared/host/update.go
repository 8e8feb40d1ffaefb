package host

import (
	"context"
	"encoding/json"

	"rollout/shared/document"
	"rollout/shared/fault"
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
	if err := json.Unmarshal(d.Value, v); err != nil {
		return "", false, fault.As(fault.Corrupt, err, "decode document %s", key)
	}
	return d.Revision, true, nil
}

// Save writes v if the document's revision is still rev; "" creates it.
func Save(ctx context.Context, docs document.Store, key string, v any, rev document.Revision) (document.Revision, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fault.As(fault.Internal, err, "encode document %s", key)
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

// ListAll calls yield for every document under prefix, in key order, a page at
// a time.
func ListAll(ctx context.Context, docs document.Store, prefix string, yield func(document.Doc) error) error {
	const page = 500
	after := ""
	for {
		ds, err := docs.List(ctx, prefix, after, page)
		if err != nil {
			return fault.Wrap(err, "list %s", prefix)
		}
		for _, d := range ds {
			if err := yield(d); err != nil {
				return err
			}
			after = d.Key
		}
		if len(ds) < page {
			return nil
		}
	}
}
