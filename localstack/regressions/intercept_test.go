package regressions

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/queue"
)

// interceptors change the stores as one process sees them. Each hook gets a
// write and decides whether to perform it with apply, and what it returns. A
// nil hook performs the write.
type interceptors struct {
	put   func(key string, apply func() error) error                // objects
	write func(key string, value []byte, apply func() error) error  // documents
	send  func(queue string, body []byte, apply func() error) error // messages, one by one
	ack   func(queue string)                                        // called after messages were acknowledged
	hides time.Duration                                             // visibility timeout of receives; 0 is as requested
}

// intercept returns ports over the installation's stores in memory with the
// interceptors.
func (p *system) intercept(v interceptors) *host.Ports {
	if v.put == nil {
		v.put = func(_ string, apply func() error) error { return apply() }
	}
	if v.write == nil {
		v.write = func(_ string, _ []byte, apply func() error) error { return apply() }
	}
	if v.send == nil {
		v.send = func(_ string, _ []byte, apply func() error) error { return apply() }
	}
	if v.ack == nil {
		v.ack = func(string) {}
	}
	ports := connect(interceptedBlobs{p.raw.blobs, v}, interceptedDocs{p.raw.docs, v}, interceptedQueues{p.raw.queues, v})
	return &ports
}

type interceptedBlobs struct {
	blob.Store
	hooks interceptors
}

// Put implements blob.Store.
func (b interceptedBlobs) Put(ctx context.Context, key string, r io.Reader,
	o blob.PutOptions) (info blob.Info, err error) {
	err = b.hooks.put(key, func() error {
		info, err = b.Store.Put(ctx, key, r, o)
		return err
	})
	return info, err
}

type interceptedDocs struct {
	document.Store
	hooks interceptors
}

// Create implements document.Store.
func (d interceptedDocs) Create(ctx context.Context, key string, value []byte) (rev document.Revision, err error) {
	err = d.hooks.write(key, value, func() error {
		rev, err = d.Store.Create(ctx, key, value)
		return err
	})
	return rev, err
}

// Replace implements document.Store.
func (d interceptedDocs) Replace(ctx context.Context, key string, value []byte,
	old document.Revision) (rev document.Revision, err error) {
	err = d.hooks.write(key, value, func() error {
		rev, err = d.Store.Replace(ctx, key, value, old)
		return err
	})
	return rev, err
}

type interceptedQueues struct {
	*memory.Queues
	hooks interceptors
}

// Send implements queue.Queues.
func (q interceptedQueues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	for _, b := range bodies {
		if err := q.hooks.send(name, b, func() error { return q.Queues.Send(ctx, name, [][]byte{b}, delay) }); err != nil {
			return err
		}
	}
	return nil
}

// Receive implements queue.Queues.
func (q interceptedQueues) Receive(ctx context.Context, name string, most int, visibility,
	wait time.Duration) ([]queue.Message, error) {
	if q.hooks.hides > 0 {
		visibility = q.hooks.hides
	}
	return q.Queues.Receive(ctx, name, most, visibility, wait)
}

// Ack implements queue.Queues.
func (q interceptedQueues) Ack(ctx context.Context, name string, receipts []string) error {
	err := q.Queues.Ack(ctx, name, receipts)
	q.hooks.ack(name)
	return err
}

// counter counts by name. Safe for concurrent use.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

// of is the count of all names with the prefix.
func (c *counter) of(prefix string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for name, n := range c.n {
		if strings.HasPrefix(name, prefix) {
			sum += n
		}
	}
	return sum
}
