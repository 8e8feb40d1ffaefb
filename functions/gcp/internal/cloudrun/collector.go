package cloudrun

import (
	"context"
	"strconv"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// Collector gathers the pushes of a subscription into batches, so that many events
// of a run are one step.
//
//	push ──Handle──▶ waiting ──a batch is full, or its first push waited a second──▶ step
//	  ▲                                                                              │
//	  └──────────── each push gets the result of its own message ◀──────────────────┘
//
// Steps follow one another: pushes that arrive during a step are in the next one. So
// the steps of one instance never compete.
type Collector struct {
	options  CollectorOptions
	handle   func(context.Context, []queue.Message) (done []string)
	arriving chan arrival
}

// CollectorOptions bound the batches of a Collector.
type CollectorOptions struct {
	Most  int           // messages of a batch; 0 means 1,000: the most requests of an instance
	Delay time.Duration // how long the first message of a batch waits for others; 0 means a second
}

// arrival is a push that waits for its step.
type arrival struct {
	message queue.Message
	done    chan<- bool // capacity 1
}

// Collect returns a collector for a handler of batches, which returns the receipts of
// the messages that are done. It works until ctx ends; then pushes are handed back.
func Collect(ctx context.Context, o CollectorOptions,
	handle func(context.Context, []queue.Message) (done []string)) *Collector {
	if o.Most == 0 {
		o.Most = 1000
	}
	if o.Delay == 0 {
		o.Delay = time.Second
	}
	c := &Collector{options: o, handle: handle, arriving: make(chan arrival)}
	go c.run(ctx)
	return c
}

// Handle waits for the step with a push, and returns its result; see Handler.
func (c *Collector) Handle(ctx context.Context, m Push) error {
	done := make(chan bool, 1)
	a := arrival{queue.Message{ID: m.ID, Body: m.Data, Receives: m.Attempt}, done}
	select {
	case c.arriving <- a:
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for a step")
	}
	select {
	case ok := <-done:
		if !ok {
			return fault.New(fault.Unavailable, "the step did not take the event")
		}
		return nil
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the end of a step")
	}
}

// run gathers batches and handles them, one after the other.
func (c *Collector) run(ctx context.Context) {
	for {
		batch := c.gather(ctx)
		if len(batch) == 0 {
			return
		}
		c.step(ctx, batch)
	}
}

// gather waits for a first push, and collects those that arrive within the delay. It
// returns none if ctx ended before there was one.
func (c *Collector) gather(ctx context.Context) (batch []arrival) {
	select {
	case first := <-c.arriving:
		batch = append(batch, first)
	case <-ctx.Done():
		return nil
	}
	timer := time.NewTimer(c.options.Delay)
	defer timer.Stop()
	for len(batch) < c.options.Most {
		select {
		case next := <-c.arriving:
			batch = append(batch, next)
		case <-timer.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// step handles a batch. A receipt is the place of a message in it, because one
// message may be pushed twice at the same time.
func (c *Collector) step(ctx context.Context, batch []arrival) {
	ctx, cancel := context.WithTimeout(ctx, handBack)
	defer cancel()
	messages := make([]queue.Message, len(batch))
	for i, a := range batch {
		messages[i] = a.message
		messages[i].Receipt = strconv.Itoa(i)
	}
	done := make(map[string]bool, len(batch))
	for _, receipt := range c.handle(ctx, messages) {
		done[receipt] = true
	}
	for i, a := range batch {
		a.done <- done[messages[i].Receipt]
	}
}
