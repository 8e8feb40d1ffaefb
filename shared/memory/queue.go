package memory

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

// Queues is a queue.Queues and queue.Depther in memory. It starts no
// goroutine; waiting receivers wait on channels and timers only.
type Queues struct {
	clock  clock.Clock
	mu     sync.Mutex
	queues map[string]*messageQueue
	sent   uint64
}

// NewQueues returns queues whose messages become visible by the clock. Waits
// are timers: the clock may be skewed against them, but has to run as fast.
func NewQueues(c clock.Clock) *Queues { return &Queues{clock: c, queues: map[string]*messageQueue{}} }

// Send puts the bodies into the queue, all of them or none.
func (q *Queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := firstOf(queue.CheckSend(name, bodies, delay), canceled(ctx, "send to queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range bodies {
		q.put(name, bytes.Clone(b), delay)
	}
	return nil
}

// Receive returns visible messages, those that have been visible longest
// first, or waits for some.
func (q *Queues) Receive(ctx context.Context, name string, max int, visibility, wait time.Duration) ([]queue.Message, error) {
	if err := firstOf(queue.CheckReceive(name, max, visibility, wait), canceled(ctx, "receive from queue "+name)); err != nil {
		return nil, err
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	woken := make(chan struct{}, 1)
	defer q.forget(name, woken)
	for {
		msgs, next := q.take(name, max, visibility, woken)
		if len(msgs) > 0 || wait == 0 {
			return msgs, nil
		}
		due := time.NewTimer(next)
		select {
		case <-woken:
		case <-due.C:
		case <-over.C:
			due.Stop()
			return nil, nil
		case <-ctx.Done():
			due.Stop()
			return nil, canceled(ctx, "receive from queue "+name)
		}
		due.Stop()
	}
}

// Extend hides a received message from now on.
func (q *Queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := firstOf(queue.CheckExtend(name, visibility), canceled(ctx, "extend in queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(name)
	e := l.find(receipt)
	if e == nil {
		return fault.New(fault.Conflict, "receipt %q of queue %s does not hold any more", receipt, name)
	}
	l.move(e, q.clock.Now().Add(visibility))
	l.wakeAll()
	return nil
}

// Ack removes received messages.
func (q *Queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := firstOf(queue.CheckName(name), canceled(ctx, "ack in queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(name)
	for _, receipt := range receipts {
		if e := l.find(receipt); e != nil {
			l.remove(e)
		}
	}
	return nil
}

// Nack makes a received message visible after delay.
func (q *Queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := firstOf(queue.CheckNack(name, delay), canceled(ctx, "nack in queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.line(name)
	if e := l.find(receipt); e != nil {
		l.move(e, q.clock.Now().Add(delay))
		l.wakeAll()
	}
	return nil
}

// Depth counts exactly.
func (q *Queues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	if err := firstOf(queue.CheckName(name), canceled(ctx, "depth of queue "+name)); err != nil {
		return 0, 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for _, e := range q.line(name).byDue {
		if e.due.After(now) {
			hidden++
		} else {
			visible++
		}
	}
	return visible, hidden, nil
}

// put adds a message; q.mu is held.
func (q *Queues) put(name string, body []byte, delay time.Duration) {
	q.sent++
	l := q.line(name)
	e := &entry{id: q.sent, body: body, due: q.clock.Now().Add(delay)}
	l.byID[e.id] = e
	heap.Push(&l.byDue, e)
	l.wakeAll()
}

// take receives what is visible now. If nothing is, it registers woken for
// the next change of the queue and says after which time a message gets due.
func (q *Queues) take(name string, max int, visibility time.Duration, woken chan struct{}) (msgs []queue.Message, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, now := q.line(name), q.clock.Now()
	for len(msgs) < max && len(l.byDue) > 0 && !l.byDue[0].due.After(now) {
		e := l.byDue[0]
		if e.receives >= queue.MaxReceives && !queue.IsDeadLetterQueue(name) {
			l.remove(e)
			q.put(queue.DeadLetterQueue(name), e.body, 0)
			continue
		}
		e.receives++
		l.move(e, now.Add(visibility))
		msgs = append(msgs, e.message())
	}
	if len(msgs) == 0 {
		l.waiting[woken] = struct{}{}
	}
	if len(l.byDue) == 0 {
		return msgs, queue.MaxVisibility
	}
	return msgs, l.byDue[0].due.Sub(now)
}

func (q *Queues) forget(name string, woken chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.line(name).waiting, woken)
}

// line returns the queue of the name, made on first use; q.mu is held.
func (q *Queues) line(name string) *messageQueue {
	l, ok := q.queues[name]
	if !ok {
		l = &messageQueue{byID: map[uint64]*entry{}, waiting: map[chan struct{}]struct{}{}}
		q.queues[name] = l
	}
	return l
}

// messageQueue is one queue: its messages by id and by the time they get visible.
type messageQueue struct {
	byID    map[uint64]*entry
	byDue   dueHeap
	waiting map[chan struct{}]struct{}
}

// find returns the message that the receipt names, or nil if it was acked or
// received again since.
func (l *messageQueue) find(receipt string) *entry {
	id, _, _ := strings.Cut(receipt, ".")
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil
	}
	if e := l.byID[n]; e != nil && e.receipt() == receipt {
		return e
	}
	return nil
}

func (l *messageQueue) move(e *entry, due time.Time) {
	e.due = due
	heap.Fix(&l.byDue, e.at)
}

func (l *messageQueue) remove(e *entry) {
	heap.Remove(&l.byDue, e.at)
	delete(l.byID, e.id)
}

func (l *messageQueue) wakeAll() {
	for woken := range l.waiting {
		wake(woken)
	}
}

// entry is a message in a line.
type entry struct {
	id       uint64
	body     []byte
	due      time.Time
	receives int
	at       int // its place in the heap
}

func (e *entry) receipt() string { return fmt.Sprintf("%d.%d", e.id, e.receives) }

func (e *entry) message() queue.Message {
	return queue.Message{ID: strconv.FormatUint(e.id, 10), Body: bytes.Clone(e.body), Receives: e.receives, Receipt: e.receipt()}
}

// dueHeap has the message that gets visible first on top.
type dueHeap []*entry

func (h dueHeap) Len() int { return len(h) }

func (h dueHeap) Less(i, j int) bool {
	if c := h[i].due.Compare(h[j].due); c != 0 {
		return c < 0
	}
	return h[i].id < h[j].id
}

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.at = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
