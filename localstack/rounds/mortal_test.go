package rounds_test

import (
	"context"
	"io"
	"time"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/queue"
)

// blobs, documents and queues are stores whose changes are edges of the process.
type blobs struct {
	blob.Store
	edge *edges
}

func (b blobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (info blob.Info, err error) {
	b.edge.around(func() { info, err = b.Store.Put(ctx, key, r, o) })
	return info, err
}

func (b blobs) Join(ctx context.Context, dst string, parts []blob.Range) (info blob.Info, err error) {
	b.edge.around(func() { info, err = b.Store.Join(ctx, dst, parts) })
	return info, err
}

type documents struct {
	document.Store
	edge *edges
}

func (d documents) Create(ctx context.Context, key string, value []byte) (rev document.Revision, err error) {
	d.edge.around(func() { rev, err = d.Store.Create(ctx, key, value) })
	return rev, err
}

func (d documents) Replace(ctx context.Context, key string, value []byte,
	old document.Revision) (rev document.Revision, err error) {
	d.edge.around(func() { rev, err = d.Store.Replace(ctx, key, value, old) })
	return rev, err
}

type queues struct {
	queue.Queues
	edge *edges
}

func (q queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) (err error) {
	q.edge.around(func() { err = q.Queues.Send(ctx, name, bodies, delay) })
	return err
}

func (q queues) Ack(ctx context.Context, name string, receipts []string) (err error) {
	q.edge.around(func() { err = q.Queues.Ack(ctx, name, receipts) })
	return err
}
