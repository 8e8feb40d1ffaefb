package hosttest

import (
	"context"
	"io"
	"sync"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// Crashing returns the ports of a process that crashes at a write to the bucket or to the
// documents: so many writes pass, and the next one is lost or, if late is set, applied without
// a reply. After it, all writes fail, as if the process had ended. The stores stay those of p,
// in which the next process goes on.
func Crashing(p host.Ports, writes int, late bool) host.Ports {
	c := &crash{left: writes, late: late}
	p.Blobs, p.Docs = crashingBlobs{p.Blobs, c}, crashingDocs{p.Docs, c}
	return p
}

// crash counts the writes of a process. It is safe for concurrent use.
type crash struct {
	mu   sync.Mutex
	left int
	late bool
}

// write does a write, unless the process has crashed.
func (c *crash) write(do func() error) error {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	if left == -1 && c.late {
		_ = do() // nobody learns how it went
	}
	if left < 0 {
		return fault.New(fault.Canceled, "the process crashed") // nothing repeats it
	}
	return do()
}

type crashingBlobs struct {
	blob.Store
	*crash
}

func (b crashingBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (
	info blob.Info, err error) {
	err = b.write(func() error { info, err = b.Store.Put(ctx, key, r, o); return err })
	return info, err
}

type crashingDocs struct {
	document.Store
	*crash
}

func (d crashingDocs) Create(ctx context.Context, key string, v []byte) (rev document.Revision, err error) {
	err = d.write(func() error { rev, err = d.Store.Create(ctx, key, v); return err })
	return rev, err
}

func (d crashingDocs) Replace(ctx context.Context, key string, v []byte, old document.Revision) (
	rev document.Revision, err error) {
	err = d.write(func() error { rev, err = d.Store.Replace(ctx, key, v, old); return err })
	return rev, err
}

func (d crashingDocs) Delete(ctx context.Context, key string, rev document.Revision) error {
	return d.write(func() error { return d.Store.Delete(ctx, key, rev) })
}
