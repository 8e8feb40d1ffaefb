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

// interceptors is the stores as one process sees them: what happens on the way of its
// writes is a test's. Each hook gets the call and performs it with apply, or
// does not.
type interceptors struct {
	put   func(key string, apply func() error) error                // objects
	write func(key string, value []byte, apply func() error) error  // documents
	send  func(queue string, body []byte, apply func() error) error // messages, one by one
	ack   func(queue string)                                        // after messages were acknowledged
	hides time.Duration                                             // how long received messages are hidden; as asked if 0
}

// intercept returns ports over the product's stores in memory, as seen so.
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
	ports := connect(viewedBlobs{p.raw.blobs, v}, viewedDocs{p.raw.docs, v}, viewedQueues{p.raw.queues, v})
	return &ports
}

type viewedBlobs struct {
	blob.Store
	view interceptors
}

// Put implements blob.Store.
func (b viewedBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (info blob.Info, err error) {
	err = b.view.put(key, func() error {
		info, err = b.Store.Put(ctx, key, r, o)
		return err
	})
	return info, err
}

type viewedDocs struct {
	document.Store
	view interceptors
}

// Create implements document.Store.
func (d viewedDocs) Create(ctx context.Context, key string, value []byte) (rev document.Revision, err error) {
	err = d.view.write(key, value, func() error {
		rev, err = d.Store.Create(ctx, key, value)
		return err
	})
	return rev, err
}

// Replace implements document.Store.
func (d viewedDocs) Replace(ctx context.Context, key string, value []byte, old document.Revision) (rev document.Revision, err error) {
	err = d.view.write(key, value, func() error {
		rev, err = d.Store.Replace(ctx, key, value, old)
		return err
	})
	return rev, err
}

type viewedQueues struct {
	*memory.Queues
	view interceptors
}

// Send implements queue.Queues.
func (q viewedQueues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	for _, b := range bodies {
		if err := q.view.send(name, b, func() error { return q.Queues.Send(ctx, name, [][]byte{b}, delay) }); err != nil {
			return err
		}
	}
	return nil
}

// Receive implements queue.Queues.
func (q viewedQueues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) ([]queue.Message, error) {
	if q.view.hides > 0 {
		visibility = q.view.hides
	}
	return q.Queues.Receive(ctx, name, most, visibility, wait)
}

// Ack implements queue.Queues.
func (q viewedQueues) Ack(ctx context.Context, name string, receipts []string) error {
	err := q.Queues.Ack(ctx, name, receipts)
	q.view.ack(name)
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

// of is how often names with the prefix were counted.
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
