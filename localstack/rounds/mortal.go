package rounds

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// Mortal returns ports of a process that dies at its call number dieAt that changes
// something: before the call if the number is odd, and after it otherwise. die ends
// the process, or cancels the contexts of its calls. With 0 the process lives.
func Mortal(p host.Ports, dieAt int, die func()) host.Ports {
	edge := &edges{dieAt: int64(dieAt), die: die}
	p.Blobs, p.Docs, p.Queues = blobs{p.Blobs, edge}, documents{p.Docs, edge}, queues{p.Queues, edge}
	return p
}

// edges counts the calls of a process.
type edges struct {
	dieAt int64
	die   func()
	calls atomic.Int64
}

// around calls f, and ends the process before or after it if it is time.
func (e *edges) around(f func()) {
	n := e.calls.Add(1)
	if n == e.dieAt && n%2 == 1 {
		e.die()
	}
	f()
	if n == e.dieAt && n%2 == 0 {
		e.die()
	}
}

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
