package meter

import (
	"context"
	"time"

	"rollout/shared/document"
)

// Documents returns s with metrics of its calls. The result is a document.Watcher if s is
// one.
func (m *Meter) Documents(s document.Store) document.Store {
	if m == nil {
		return s
	}
	d := docs{s, &m.ports}
	if w, ok := s.(document.Watcher); ok {
		return watcher{d, w}
	}
	return d
}

type docs struct {
	store document.Store
	meter *ports
}

type watcher struct {
	docs
	document.Watcher
}

func (d docs) called(operation, key string, start time.Time, err *error) {
	d.meter.docs.WithLabelValues(operation, kindOf(key), code(*err)).Inc()
	d.meter.docsTook.WithLabelValues(operation).Observe(since(start))
}

func (d docs) Get(ctx context.Context, key string) (doc document.Doc, err error) {
	defer d.called("get", key, time.Now(), &err)
	return d.store.Get(ctx, key)
}

func (d docs) GetMany(ctx context.Context, keys []string) (out []document.Doc, err error) {
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	defer d.called("get_many", first, time.Now(), &err)
	return d.store.GetMany(ctx, keys)
}

func (d docs) Create(ctx context.Context, key string, value []byte) (rev document.Revision, err error) {
	defer d.called("create", key, time.Now(), &err)
	return d.store.Create(ctx, key, value)
}

func (d docs) Replace(ctx context.Context, key string, value []byte, old document.Revision) (
	rev document.Revision, err error,
) {
	defer d.called("replace", key, time.Now(), &err)
	return d.store.Replace(ctx, key, value, old)
}

func (d docs) Delete(ctx context.Context, key string, rev document.Revision) (err error) {
	defer d.called("delete", key, time.Now(), &err)
	return d.store.Delete(ctx, key, rev)
}

func (d docs) List(ctx context.Context, prefix, after string, limit int) (out []document.Doc, err error) {
	defer d.called("list", prefix, time.Now(), &err)
	return d.store.List(ctx, prefix, after, limit)
}

func (d docs) Ping(ctx context.Context) (err error) {
	defer d.called("ping", "", time.Now(), &err)
	return d.store.Ping(ctx)
}
