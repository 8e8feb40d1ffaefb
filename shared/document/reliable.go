package document

import (
	"bytes"
	"context"

	"rollout/shared/fault"
	"rollout/shared/retry"
)

// Reliable returns the store with retries of retriable faults. It recognises its
// own repeated writes: a reply may be lost after the write was applied, and then
// the repetition, here or within a vendor's SDK, finds its own document.
//
// On Conflict, Create and Replace read the document. If it has the bytes that
// they wanted to write, they succeed with its revision. Competing writers must
// therefore write different bytes (a name, an attempt or a nonce); two writers of
// the same bytes may both succeed. A repeated Delete that finds nothing succeeds.
//
// The result is also a Watcher. It sends no hints if the store is not one.
func Reliable(s Store, p retry.Policy) Store { return &reliable{s, p} }

type reliable struct {
	store  Store
	policy retry.Policy
}

func (r *reliable) Get(ctx context.Context, key string) (d Doc, err error) {
	err = r.policy.Do(ctx, func(int) error {
		d, err = r.store.Get(ctx, key)
		return err
	})
	return d, err
}

func (r *reliable) GetMany(ctx context.Context, keys []string) (docs []Doc, err error) {
	err = r.policy.Do(ctx, func(int) error {
		docs, err = r.store.GetMany(ctx, keys)
		return err
	})
	return docs, err
}

func (r *reliable) Create(ctx context.Context, key string, value []byte) (rev Revision, err error) {
	err = r.policy.Do(ctx, func(int) error {
		rev, err = r.store.Create(ctx, key, value)
		return err
	})
	return r.own(ctx, key, value, rev, err)
}

func (r *reliable) Replace(ctx context.Context, key string, value []byte, old Revision) (rev Revision, err error) {
	err = r.policy.Do(ctx, func(int) error {
		rev, err = r.store.Replace(ctx, key, value, old)
		return err
	})
	return r.own(ctx, key, value, rev, err)
}

// own turns a Conflict into a success if the document has the wanted bytes.
func (r *reliable) own(ctx context.Context, key string, value []byte, rev Revision, err error) (Revision, error) {
	if !fault.Is(err, fault.Conflict) {
		return rev, err
	}
	d, readErr := r.Get(ctx, key)
	switch {
	case fault.Is(readErr, fault.NotFound):
		return "", err
	case readErr != nil:
		return "", fault.Wrap(readErr, "read document %s after a conflict", key)
	case !bytes.Equal(d.Value, value):
		return "", err
	}
	return d.Revision, nil
}

func (r *reliable) Delete(ctx context.Context, key string, rev Revision) error {
	return r.policy.Do(ctx, func(try int) error {
		err := r.store.Delete(ctx, key, rev)
		if try > 0 && fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
}

func (r *reliable) List(ctx context.Context, prefix, after string, limit int) (docs []Doc, err error) {
	err = r.policy.Do(ctx, func(int) error {
		docs, err = r.store.List(ctx, prefix, after, limit)
		return err
	})
	return docs, err
}

// Ping asks once, because a probe reports the present state.
func (r *reliable) Ping(ctx context.Context) error { return r.store.Ping(ctx) }

// Watch passes the store's hints on.
func (r *reliable) Watch(ctx context.Context, prefix string) <-chan struct{} {
	if w, ok := r.store.(Watcher); ok {
		return w.Watch(ctx, prefix)
	}
	hints := make(chan struct{})
	context.AfterFunc(ctx, func() { close(hints) })
	return hints
}
