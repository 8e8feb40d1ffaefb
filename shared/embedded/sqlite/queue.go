package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// messageBatch is the most messages of one change, so that a large batch does not
// delay the other changes of its group.
const messageBatch = 500

const (
	sendMessage       = `INSERT INTO message (id, queue, due, receives, body) VALUES (?, ?, ?, 0, ?)`
	nextMessage       = `SELECT due FROM message WHERE queue = ? ORDER BY due LIMIT 1`
	visibleMessages   = `SELECT id, receives, body FROM message WHERE queue = ? AND due <= ? ORDER BY due, id LIMIT ?`
	takeMessage       = `UPDATE message SET due = ?, receives = receives + 1 WHERE id = ?`
	deadLetterMessage = `UPDATE message SET queue = ?, due = ?, receives = 0 WHERE id = ?`
	hideMessage       = `UPDATE message SET due = ? WHERE id = ? AND receives = ? AND queue = ?`
	deleteMessage     = `DELETE FROM message WHERE id = ? AND receives = ? AND queue = ?`
	countVisible      = `SELECT count(*) FROM message WHERE queue = ? AND due <= ?`
	countHidden       = `SELECT count(*) FROM message WHERE queue = ? AND due > ?`
)

// queues implements queue.Queues and queue.Depther. A receipt is the message's id and
// its number of deliveries, for example "17.1", so that the next delivery invalidates
// it.
type queues struct{ state *State }

func (q queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := queue.CheckSend(name, bodies, delay); err != nil {
		return err
	}
	due := q.state.clock.Now().Add(delay).UnixNano()
	for batch := range slices.Chunk(bodies, messageBatch) {
		size, own := 0, make([][]byte, len(batch))
		for i, body := range batch {
			size += len(body)
			own[i] = cloneValue(body)
		}
		err := q.state.write(ctx, size, func(ctx context.Context, g *transaction) error {
			for _, body := range own {
				g.filled(name)
				if _, err := g.exec(ctx, sendMessage, g.writes, name, due, body); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fault.Wrap(err, "send to queue %s", name)
		}
	}
	return nil
}

func (q queues) Receive(ctx context.Context, name string, max int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
	if err := queue.CheckReceive(name, max, visibility, wait); err != nil {
		return nil, err
	}
	msgs, _, err := q.receive(ctx, name, max, visibility)
	if err == nil && len(msgs) == 0 && wait > 0 {
		msgs, err = q.await(ctx, name, max, visibility, wait)
	}
	return msgs, fault.Wrap(err, "receive from queue %s", name)
}

// await receives messages as soon as some are visible, and returns none after wait.
func (q queues) await(ctx context.Context, name string, max int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
	over := time.NewTimer(wait)
	defer over.Stop()
	w := q.state.notifier.wait(name)
	defer q.state.notifier.remove(w)
	for {
		msgs, due, err := q.receive(ctx, name, max, visibility)
		if err != nil || len(msgs) > 0 {
			return msgs, err
		}
		q.state.notifier.expect(w, due)
		select {
		case <-w.hints:
		case <-over.C:
			return nil, nil
		case <-ctx.Done():
			return nil, fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for messages")
		case <-q.state.notifier.closing:
			return nil, q.state.writer.closed()
		}
	}
}

// receive receives the messages that are visible now. If none is, it writes nothing
// and returns the time at which the next message becomes visible, zero for an empty
// queue.
func (q queues) receive(ctx context.Context, name string, max int, visibility time.Duration) (
	[]queue.Message, time.Time, error,
) {
	var nanos int64
	var exists bool
	err := q.state.read(ctx, func(ctx context.Context, s *session) (err error) {
		nanos, exists, err = s.number(ctx, nextMessage, name)
		return err
	})
	switch {
	case err != nil || !exists:
		return nil, time.Time{}, err
	case nanos > q.state.clock.Now().UnixNano():
		return nil, time.Unix(0, nanos), nil
	}
	// After an error this function must not read msgs: if ctx ended, the writer may
	// still set it.
	var msgs []queue.Message
	err = q.state.write(ctx, 0, func(ctx context.Context, g *transaction) (err error) {
		msgs, err = g.deliver(ctx, name, max, q.state.clock.Now(), visibility)
		return err
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return msgs, time.Unix(0, nanos), nil
}

// deliver receives up to max visible messages, those visible longest first. It moves
// messages that were received too often to the dead-letter queue.
func (g *transaction) deliver(
	ctx context.Context, name string, max int, now time.Time, visibility time.Duration,
) ([]queue.Message, error) {
	for {
		found, err := g.visible(ctx, name, max, now)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		var msgs []queue.Message
		for _, m := range found {
			if m.receives >= queue.MaxReceives && !queue.IsDeadLetterQueue(name) {
				dead := queue.DeadLetterQueue(name)
				g.filled(dead)
				_, err = g.exec(ctx, deadLetterMessage, dead, now.UnixNano(), m.id)
			} else {
				g.writes++
				_, err = g.exec(ctx, takeMessage, now.Add(visibility).UnixNano(), m.id)
				msgs = append(msgs, m.delivery())
			}
			if err != nil {
				return nil, err
			}
		}
		if len(msgs) > 0 {
			return msgs, nil
		}
	}
}

// stored is a message before its delivery.
type stored struct {
	id, receives int64
	body         []byte
}

// delivery returns the message as its next receiver gets it.
func (m stored) delivery() queue.Message {
	return queue.Message{
		ID:       strconv.FormatInt(m.id, 10),
		Body:     m.body,
		Receives: int(m.receives) + 1,
		Receipt:  fmt.Sprintf("%d.%d", m.id, m.receives+1),
	}
}

// visible returns up to max visible messages, and fewer if their bodies reach
// pageBytes.
func (g *transaction) visible(ctx context.Context, name string, max int, now time.Time) ([]stored, error) {
	var found []stored
	size := 0
	err := g.query(ctx, visibleMessages, func(row []driver.Value) error {
		var m stored
		m.id, _ = row[0].(int64)
		m.receives, _ = row[1].(int64)
		m.body, _ = row[2].([]byte)
		found = append(found, m)
		if size += len(m.body); size >= pageBytes {
			return errLastRow
		}
		return nil
	}, name, now.UnixNano(), int64(max))
	return found, err
}

func (q queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := queue.CheckExtend(name, visibility); err != nil {
		return err
	}
	return fault.Wrap(q.hide(ctx, name, receipt, visibility), "extend in queue %s", name)
}

func (q queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := queue.CheckNack(name, delay); err != nil {
		return err
	}
	err := q.hide(ctx, name, receipt, delay)
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return fault.Wrap(err, "nack in queue %s", name)
}

// hide makes a received message visible after the given time. It fails with Conflict
// if the receipt has expired.
func (q queues) hide(ctx context.Context, name, receipt string, after time.Duration) error {
	stale := fault.New(fault.Conflict, "the receipt %q has expired", receipt)
	id, receives, ok := parseReceipt(receipt)
	if !ok {
		return stale
	}
	return q.state.write(ctx, 0, func(ctx context.Context, g *transaction) error {
		n, err := g.exec(ctx, hideMessage, q.state.clock.Now().Add(after).UnixNano(), id, receives, name)
		if err == nil && n == 0 {
			return stale
		}
		g.filled(name)
		return err
	})
}

func (q queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	for batch := range slices.Chunk(receipts, messageBatch) {
		own := slices.Clone(batch)
		err := q.state.write(ctx, 0, func(ctx context.Context, g *transaction) error {
			for _, receipt := range own {
				id, receives, ok := parseReceipt(receipt)
				if !ok {
					continue
				}
				n, err := g.exec(ctx, deleteMessage, id, receives, name)
				if err != nil {
					return err
				}
				g.writes += n
			}
			return nil
		})
		if err != nil {
			return fault.Wrap(err, "ack in queue %s", name)
		}
	}
	return nil
}

func (q queues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	if err := queue.CheckName(name); err != nil {
		return 0, 0, err
	}
	now := q.state.clock.Now().UnixNano()
	err = q.state.read(ctx, func(ctx context.Context, s *session) error {
		v, _, err := s.number(ctx, countVisible, name, now)
		if err != nil {
			return err
		}
		h, _, err := s.number(ctx, countHidden, name, now)
		visible, hidden = int(v), int(h)
		return err
	})
	return visible, hidden, fault.Wrap(err, "depth of queue %s", name)
}

// parseReceipt returns the message id and the number of deliveries of a receipt.
func parseReceipt(receipt string) (id, receives int64, ok bool) {
	left, right, _ := strings.Cut(receipt, ".")
	id, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	receives, err = strconv.ParseInt(right, 10, 64)
	return id, receives, err == nil
}
