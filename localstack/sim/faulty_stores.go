package sim

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/queue"
)

// blobs is the bucket of a process, with faults.
type blobs struct {
	*process
	inner blob.Store
}

func (b blobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (info blob.Info, err error) {
	all, err := io.ReadAll(r)
	if err != nil {
		return info, err
	}
	all = b.world.constraints.label(key, all)
	err = b.effect(ctx, "put "+key, func() error {
		if info, err = b.inner.Put(ctx, key, bytes.NewReader(all), o); err == nil {
			b.world.audit.put(key, o.CreateOnly)
		}
		return err
	})
	return info, err
}

func (b blobs) Get(ctx context.Context, key string, o blob.GetOptions) (r io.ReadCloser, info blob.Info, err error) {
	err = b.effect(ctx, "get "+key, func() error {
		r, info, err = b.inner.Get(ctx, key, o)
		return err
	})
	if err != nil {
		return nil, info, err
	}
	return r, info, nil
}

func (b blobs) Stat(ctx context.Context, key, version string) (info blob.Info, err error) {
	err = b.effect(ctx, "stat "+key, func() error { info, err = b.inner.Stat(ctx, key, version); return err })
	return info, err
}

func (b blobs) List(ctx context.Context, prefix, after string, limit int) (infos []blob.Info, err error) {
	err = b.effect(ctx, "list "+prefix, func() error { infos, err = b.inner.List(ctx, prefix, after, limit); return err })
	return infos, err
}

func (b blobs) Join(ctx context.Context, dst string, parts []blob.Range) (info blob.Info, err error) {
	err = b.effect(ctx, "join "+dst, func() error { info, err = b.inner.Join(ctx, dst, parts); return err })
	return info, err
}

func (b blobs) Copy(ctx context.Context, dst, src string) (info blob.Info, err error) {
	err = b.effect(ctx, "copy "+dst, func() error { info, err = b.inner.Copy(ctx, dst, src); return err })
	return info, err
}

func (b blobs) Delete(ctx context.Context, key, version string) error {
	return b.effect(ctx, "delete "+key, func() error { return b.inner.Delete(ctx, key, version) })
}

// documents are the documents of a process, with faults.
type documents struct {
	*process
	inner document.Store
}

func (d documents) Get(ctx context.Context, key string) (doc document.Doc, err error) {
	err = d.effect(ctx, "get "+key, func() error { doc, err = d.inner.Get(ctx, key); return err })
	return doc, err
}

func (d documents) GetMany(ctx context.Context, keys []string) (docs []document.Doc, err error) {
	err = d.effect(ctx, "get many", func() error { docs, err = d.inner.GetMany(ctx, keys); return err })
	return docs, err
}

func (d documents) Create(ctx context.Context, key string, value []byte) (rev document.Revision, err error) {
	err = d.effect(ctx, "create "+key, func() error {
		if rev, err = d.inner.Create(ctx, key, value); err == nil {
			d.world.audit.document(d.process, key, value)
		}
		return err
	})
	return rev, err
}

func (d documents) Replace(
	ctx context.Context, key string, value []byte, old document.Revision,
) (rev document.Revision, err error) {
	err = d.effect(ctx, "replace "+key, func() error {
		if rev, err = d.inner.Replace(ctx, key, value, old); err == nil {
			d.world.audit.document(d.process, key, value)
		}
		return err
	})
	return rev, err
}

func (d documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	return d.effect(ctx, "delete "+key, func() error { return d.inner.Delete(ctx, key, rev) })
}

func (d documents) List(ctx context.Context, prefix, after string, limit int) (docs []document.Doc, err error) {
	err = d.effect(ctx, "list "+prefix, func() error { docs, err = d.inner.List(ctx, prefix, after, limit); return err })
	return docs, err
}

func (d documents) Ping(ctx context.Context) error { return d.inner.Ping(ctx) }

// queues are the queues of a process, with faults. They also lose, duplicate and
// delay messages, and so reorder them.
type queues struct {
	*process
	inner queue.Queues
}

func (q queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	return q.effect(ctx, "send "+name, func() error {
		for _, body := range bodies {
			if err := q.send(ctx, name, body, delay); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q queues) send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	w, label := q.world, q.name+"/"+name
	copies := 1
	if w.faultsOn() && !strings.HasSuffix(name, "-dead") {
		if w.rand.chance("drop/"+label, w.rates.Drop) {
			copies = 0
		}
		for w.rand.chance("duplicate/"+label, w.rates.Duplicate) && copies < 4 {
			copies++
		}
	}
	for range copies {
		late := delay
		if w.faultsOn() && w.rand.chance("late/"+label, w.rates.Late) {
			late += w.rand.duration("how late/"+label, 0, 2*time.Second)
		}
		if err := q.inner.Send(ctx, name, [][]byte{body}, late); err != nil {
			return err
		}
	}
	return nil
}

func (q queues) Receive(
	ctx context.Context, name string, most int, visibility, wait time.Duration,
) (ms []queue.Message, err error) {
	if err := q.checkAlive(ctx); err != nil {
		return nil, err
	}
	ms, err = q.inner.Receive(ctx, name, most, visibility, wait)
	if err != nil || len(ms) == 0 {
		return ms, err
	}
	return ms, q.delay(ctx, q.name+"/receive "+name)
}

func (q queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	return q.effect(ctx, "extend "+name, func() error { return q.inner.Extend(ctx, name, receipt, visibility) })
}

func (q queues) Ack(ctx context.Context, name string, receipts []string) error {
	return q.effect(ctx, "ack "+name, func() error { return q.inner.Ack(ctx, name, receipts) })
}

func (q queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	return q.effect(ctx, "nack "+name, func() error { return q.inner.Nack(ctx, name, receipt, delay) })
}

func (q queues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	return q.inner.(queue.Depther).Depth(ctx, name)
}
