package memory

import (
	"bytes"
	"cmp"
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

// Queues is a queue.Queues and queue.Depther in memory. Use NewQueues to create them.
// They are safe for concurrent use, and start no goroutine.
type Queues struct {
	clock  clock.Clock
	mu     sync.Mutex
	queues map[string]*messageQueue
	sent   uint64
}

// NewQueues returns empty queues. The clock decides when a message is visible. Waits
// use timers, so that the clock may have an offset but must run at the same speed.
func NewQueues(c clock.Clock) *Queues { return &Queues{clock: c, queues: map[string]*messageQueue{}} }

// Send puts the bodies into the queue, all of them or none.
func (q *Queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := cmp.Or(queue.CheckSend(name, bodies, delay), canceled(ctx, "send to queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range bodies {
		q.put(name, bytes.Clone(b), delay)
	}
	return nil
}

// Receive returns visible messages, or waits for one. The messages that have been
// visible longest come first.
func (q *Queues) Receive(ctx context.Context, name string, max int,
	visibility, wait time.Duration) ([]queue.Message, error) {
	err := cmp.Or(queue.CheckReceive(name, max, visibility, wait), canceled(ctx, "receive from queue "+name))
	if err != nil {
		return nil, err
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	woken := make(chan struct{}, 1)
	defer q.stopWaiting(name, woken)
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

// Extend hides a received message for that time from now on.
func (q *Queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := cmp.Or(queue.CheckExtend(name, visibility), canceled(ctx, "extend in queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	mq := q.queue(name)
	e := mq.find(receipt)
	if e == nil {
		return fault.New(fault.Conflict, "receipt %q of queue %s is no longer valid", receipt, name)
	}
	mq.move(e, q.clock.Now().Add(visibility))
	mq.wakeAll()
	return nil
}

// Ack removes received messages.
func (q *Queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := cmp.Or(queue.CheckName(name), canceled(ctx, "ack in queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	mq := q.queue(name)
	for _, receipt := range receipts {
		if e := mq.find(receipt); e != nil {
			mq.remove(e)
		}
	}
	return nil
}

// Nack makes a received message visible after delay.
func (q *Queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := cmp.Or(queue.CheckNack(name, delay), canceled(ctx, "nack in queue "+name)); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	mq := q.queue(name)
	if e := mq.find(receipt); e != nil {
		mq.move(e, q.clock.Now().Add(delay))
		mq.wakeAll()
	}
	return nil
}

// Depth returns exact counts.
func (q *Queues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	if err := cmp.Or(queue.CheckName(name), canceled(ctx, "depth of queue "+name)); err != nil {
		return 0, 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for _, e := range q.queue(name).byDue {
		if e.due.After(now) {
			hidden++
		} else {
			visible++
		}
	}
	return visible, hidden, nil
}

// put adds a message. The caller holds q.mu.
func (q *Queues) put(name string, body []byte, delay time.Duration) {
	q.sent++
	mq := q.queue(name)
	e := &entry{id: q.sent, body: body, due: q.clock.Now().Add(delay)}
	mq.byID[e.id] = e
	heap.Push(&mq.byDue, e)
	mq.wakeAll()
}

// take receives the messages that are visible now. If there are none, it registers
// woken for the next change of the queue. next is the time until a hidden message
// becomes visible.
func (q *Queues) take(name string, max int, visibility time.Duration,
	woken chan struct{}) (msgs []queue.Message, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mq, now := q.queue(name), q.clock.Now()
	for len(msgs) < max && len(mq.byDue) > 0 && !mq.byDue[0].due.After(now) {
		e := mq.byDue[0]
		if e.receives >= queue.MaxReceives && !queue.IsDeadLetterQueue(name) {
			mq.remove(e)
			q.put(queue.DeadLetterQueue(name), e.body, 0)
			continue
		}
		e.receives++
		mq.move(e, now.Add(visibility))
		msgs = append(msgs, e.message())
	}
	if len(msgs) == 0 {
		mq.waiting[woken] = struct{}{}
	}
	if len(mq.byDue) == 0 {
		return msgs, queue.MaxVisibility
	}
	return msgs, mq.byDue[0].due.Sub(now)
}

func (q *Queues) stopWaiting(name string, woken chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.queue(name).waiting, woken)
}

// queue returns the queue with the name, and creates it on first use. The caller holds
// q.mu.
func (q *Queues) queue(name string) *messageQueue {
	mq, ok := q.queues[name]
	if !ok {
		mq = &messageQueue{byID: map[uint64]*entry{}, waiting: map[chan struct{}]struct{}{}}
		q.queues[name] = mq
	}
	return mq
}

// messageQueue is one queue: its messages by id, and by the time at which they become
// visible.
type messageQueue struct {
	byID    map[uint64]*entry
	byDue   dueHeap
	waiting map[chan struct{}]struct{} // of receivers
}

// find returns the message of the receipt, or nil if it was acknowledged or received
// again since.
func (mq *messageQueue) find(receipt string) *entry {
	id, _, _ := strings.Cut(receipt, ".")
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil
	}
	if e := mq.byID[n]; e != nil && e.receipt() == receipt {
		return e
	}
	return nil
}

func (mq *messageQueue) move(e *entry, due time.Time) {
	e.due = due
	heap.Fix(&mq.byDue, e.at)
}

func (mq *messageQueue) remove(e *entry) {
	heap.Remove(&mq.byDue, e.at)
	delete(mq.byID, e.id)
}

func (mq *messageQueue) wakeAll() {
	for woken := range mq.waiting {
		wake(woken)
	}
}

// entry is a message in a queue.
type entry struct {
	id       uint64
	body     []byte
	due      time.Time
	receives int
	at       int // its index in the heap
}

func (e *entry) receipt() string { return fmt.Sprintf("%d.%d", e.id, e.receives) }

func (e *entry) message() queue.Message {
	return queue.Message{ID: strconv.FormatUint(e.id, 10), Body: bytes.Clone(e.body),
		Receives: e.receives, Receipt: e.receipt()}
}

// dueHeap is a heap.Interface with the message that becomes visible first on top.
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
