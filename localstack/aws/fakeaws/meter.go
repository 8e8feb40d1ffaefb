package fakeaws

import (
	"maps"
	"sync"
)

// RequestKind is what is counted together.
type RequestKind struct {
	Service, Operation string
	Resource           string // such as "shard"; see about
	Caller             string
}

// Count is what was counted of a kind.
type Count struct {
	Requests int
	// Throttled requests were not carried out; of those whose reply was lost,
	// nobody knew that they were.
	Throttled, RepliesLost int
	BytesIn                int64
	BytesOut               int64
	// Units are DynamoDB's, of reading or writing.
	Units float64
}

// Meter counts requests.
type Meter struct {
	mu     sync.Mutex
	counts map[RequestKind]*Count
	seen   func(RequestKind) // told of each request, if set
}

func newMeter() *Meter { return &Meter{counts: map[RequestKind]*Count{}} }

// Counts returns what was counted since the last Reset.
func (m *Meter) Counts() map[RequestKind]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[RequestKind]Count{}
	for k, c := range m.counts {
		out[k] = *c
	}
	return out
}

// Reset forgets what was counted.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.counts)
}

// Watch has f told of each request before it is carried out.
func (m *Meter) Watch(f func(RequestKind)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = f
}

// DiffCounts returns what was counted in a and not yet in b.
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
	k := RequestKind{q.service, q.operation, q.about, q.caller}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts[k] == nil {
		m.counts[k] = &Count{}
	}
	how(m.counts[k])
}

// note counts a request of a kind, of which no more is known.
func (m *Meter) note(k RequestKind) {
	m.change(&request{service: k.Service, operation: k.Operation, about: k.Resource, caller: k.Caller}, func(c *Count) { c.Requests++ })
}

// begin counts a request.
func (m *Meter) begin(q *request) {
	m.change(q, func(c *Count) { c.Requests++; c.BytesIn += int64(len(q.body)) })
	m.mu.Lock()
	seen := m.seen
	m.mu.Unlock()
	if seen != nil {
		seen(RequestKind{q.service, q.operation, q.about, q.caller})
	}
}

// end counts what a request cost. body is nil where nobody looks at it.
func (m *Meter) end(q *request, out int64, body []byte) {
	m.change(q, func(c *Count) {
		c.BytesOut += out
		if q.service == DynamoDB {
			c.Units += units(q.operation, q.body, body)
		}
	})
}

func (m *Meter) fault(q *request, what string) {
	m.change(q, func(c *Count) {
		if what == "lost" {
			c.RepliesLost++
		} else {
			c.Throttled++
		}
	})
}
