package fakeaws

import (
	"maps"
	"sync"
)

// RequestKind is a kind of requests that are counted together.
type RequestKind struct {
	Service, Operation string
	Resource           string // such as "shard"; see Cloud.resourceOf
	Caller             string
}

// Count are the counts of a kind of requests.
type Count struct {
	Requests int
	// Throttled requests were not performed. Requests with lost replies were
	// performed, unknown to the caller.
	Throttled, RepliesLost int
	BytesIn                int64
	BytesOut               int64
	// Units are DynamoDB's read or write units.
	Units float64
}

// Meter counts requests. It is safe for concurrent use.
type Meter struct {
	mu     sync.Mutex
	counts map[RequestKind]*Count
	seen   func(RequestKind) // called for each request; may be nil
}

func newMeter() *Meter { return &Meter{counts: map[RequestKind]*Count{}} }

// Counts returns the counts since the last Reset.
func (m *Meter) Counts() map[RequestKind]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[RequestKind]Count{}
	for k, c := range m.counts {
		out[k] = *c
	}
	return out
}

// Reset sets all counts to zero.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.counts)
}

// Watch calls f for each request before it is performed.
func (m *Meter) Watch(f func(RequestKind)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = f
}

// DiffCounts returns the counts of a minus those of b, without zero counts.
func DiffCounts(a, b map[RequestKind]Count) map[RequestKind]Count {
	out := maps.Clone(a)
	for k, c := range b {
		n := out[k]
		n.Requests, n.Throttled, n.RepliesLost = n.Requests-c.Requests, n.Throttled-c.Throttled, n.RepliesLost-c.RepliesLost
		n.BytesIn, n.BytesOut, n.Units = n.BytesIn-c.BytesIn, n.BytesOut-c.BytesOut, n.Units-c.Units
		if out[k] = n; n == (Count{}) {
			delete(out, k)
		}
	}
	return out
}

// change changes the count of a request's kind.
func (m *Meter) change(q *request, how func(*Count)) {
	k := RequestKind{q.service, q.operation, q.resource, q.caller}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts[k] == nil {
		m.counts[k] = &Count{}
	}
	how(m.counts[k])
}

// note counts a request of a kind without its bytes and units.
func (m *Meter) note(k RequestKind) {
	m.change(&request{service: k.Service, operation: k.Operation, resource: k.Resource, caller: k.Caller},
		func(c *Count) { c.Requests++ })
}

// begin counts a request.
func (m *Meter) begin(q *request) {
	m.change(q, func(c *Count) { c.Requests++; c.BytesIn += int64(len(q.body)) })
	m.mu.Lock()
	seen := m.seen
	m.mu.Unlock()
	if seen != nil {
		seen(RequestKind{q.service, q.operation, q.resource, q.caller})
	}
}

// end counts the bytes and units of an answered request. body is nil for services
// without units.
func (m *Meter) end(q *request, out int64, body []byte) {
	m.change(q, func(c *Count) {
		c.BytesOut += out
		if q.service == DynamoDB {
			c.Units += units(q.operation, q.body, body)
		}
	})
}

// fault counts an injected fault.
func (m *Meter) fault(q *request, what string) {
	m.change(q, func(c *Count) {
		if what == "lost" {
			c.RepliesLost++
		} else {
			c.Throttled++
		}
	})
}
