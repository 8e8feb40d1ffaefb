// Package queue is the port to named message queues: SQS, Pub/Sub or SQLite.
//
// Queues deliver at least once and in no order. Messages are hints: losing
// one, or getting it three times, late or out of order, changes no result.
// Every driver passes package queuetest. The port states the smallest limit
// of all its stores: a body is at most 64 KiB of UTF-8, a batch at most 10
// bodies for the store (drivers split larger ones), a queue's name matches
// [a-z0-9-]{1,64}.
package queue

import (
	"context"
	"time"
)

// Limits of the port.
const (
	MaxBody     = 64 << 10 // bytes of a body
	MaxName     = 64       // bytes of a queue's name, not counting "-dead"
	MaxBatch    = 10       // bodies or receipts of one request to a store
	MaxReceives = 16       // a message received more often goes to the dead letters
)

// Message is one delivery of one message.
type Message struct {
	ID       string
	Body     []byte
	Receives int    // 1 at the first delivery; some stores go on counting for a dead letter
	Receipt  string // names this delivery; stale after redelivery
}

// Queues is a set of named queues. A queue is created on first use. All methods may be
// called concurrently.
type Queues interface {
	// Send puts the bodies into the queue, visible after delay. When it fails,
	// some of them may have been sent.
	Send(ctx context.Context, queue string, bodies [][]byte, delay time.Duration) error
	// Receive returns up to max messages (1 to 1,000; a store may return
	// fewer) and hides each for visibility, which is more than 0. If the queue is
	// empty, it waits up to wait for the first message, then returns an empty
	// slice and no error. Dead letters stay in their queue however often they
	// are received.
	Receive(ctx context.Context, queue string, max int, visibility, wait time.Duration) ([]Message, error)
	// Extend hides a received message for visibility from now on. A receipt
	// that no longer holds is Conflict, if the store notices: Pub/Sub does not.
	Extend(ctx context.Context, queue, receipt string, visibility time.Duration) error
	// Ack removes received messages. Receipts that no longer hold are ignored.
	Ack(ctx context.Context, queue string, receipts []string) error
	// Nack makes a received message visible again after delay. A receipt that
	// no longer holds is ignored.
	Nack(ctx context.Context, queue, receipt string, delay time.Duration) error
}

// DeadLetterQueue names the queue that holds the dead letters of a queue.
func DeadLetterQueue(queue string) string { return queue + "-dead" }

// Depther is an optional feature of Queues: how many messages can be received now,
// and how many are hidden. The numbers are approximate in clouds.
type Depther interface {
	Depth(ctx context.Context, queue string) (visible, hidden int, err error)
}
