package meter

import (
	"context"
	"io"
	"time"

	"rollout/shared/blob"
)

// Blobs returns s with metrics of its calls. The result is a blob.SkippedLister
// and a blob.Settler if s is both.
func (m *Meter) Blobs(s blob.Store) blob.Store {
	if m == nil {
		return s
	}
	counted := &blobs{s, &m.ports}
	if f, ok := s.(folder); ok {
		return folderBlobs{counted, f}
	}
	return counted
}

// folder are the optional features of a bucket that is a folder.
type folder interface {
	blob.SkippedLister
	blob.Settler
}

type folderBlobs struct {
	*blobs
	folder
}

type blobs struct {
	store blob.Store
	meter *ports
}

func (b *blobs) called(operation string, start time.Time, err *error) {
	b.meter.blobs.WithLabelValues(operation, code(*err)).Inc()
	b.meter.blobTook.WithLabelValues(operation).Observe(since(start))
}

func (b *blobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (info blob.Info, err error) {
	defer b.called("put", time.Now(), &err)
	info, err = b.store.Put(ctx, key, r, o)
	if err == nil {
		b.meter.blobBytes.Add(float64(info.Size))
	}
	return info, err
}

func (b *blobs) Get(ctx context.Context, key string, o blob.GetOptions) (r io.ReadCloser, info blob.Info, err error) {
	defer b.called("get", time.Now(), &err)
	return b.store.Get(ctx, key, o)
}

func (b *blobs) Stat(ctx context.Context, key, version string) (info blob.Info, err error) {
	defer b.called("stat", time.Now(), &err)
	return b.store.Stat(ctx, key, version)
}

func (b *blobs) List(ctx context.Context, prefix, after string, limit int) (infos []blob.Info, err error) {
	defer b.called("list", time.Now(), &err)
	return b.store.List(ctx, prefix, after, limit)
}

func (b *blobs) Join(ctx context.Context, dst string, parts []blob.Range) (info blob.Info, err error) {
	defer b.called("join", time.Now(), &err)
	return b.store.Join(ctx, dst, parts)
}

func (b *blobs) Copy(ctx context.Context, dst, src string) (info blob.Info, err error) {
	defer b.called("copy", time.Now(), &err)
	return b.store.Copy(ctx, dst, src)
}

func (b *blobs) Delete(ctx context.Context, key, version string) (err error) {
	defer b.called("delete", time.Now(), &err)
	return b.store.Delete(ctx, key, version)
}
