package cloudrun

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// Collector gathers the pushes of a subscription into batches, so that many events
// of a run are one step.
//
//	push ──Handle──▶ waiting ──a batch is full, or the limiter allows a step──▶ step
//	  ▲                                                                        │
//	  └────────── each push gets the result of its own message ◀──────────────┘
//
// An instance is paid for while a push waits. So the events of a run with few machines, which
// come seconds apart, are each a step at once. When there are more, the limiter spaces the
// steps, and what comes meanwhile is the next one: a run's document is written less than ten
// times in ten seconds, as Firestore sustains it.
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
	Most int // messages of a batch; 0 means 1,000: the most requests of an instance
	// Steps spaces the steps of batches that are not full; nil means three at once, and then
	// one each 1.6 s.
	Steps *rate.Limiter
}

// spacing and atOnce are the default of CollectorOptions.Steps: nine steps in ten seconds.
const (
	spacing = 1600 * time.Millisecond
	atOnce  = 3
)

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
	if o.Steps == nil {
		o.Steps = rate.NewLimiter(rate.Every(spacing), atOnce)
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

// gather waits for a first push, and collects those that arrive until a step is allowed. It
// returns none if ctx ended before there was one.
func (c *Collector) gather(ctx context.Context) (batch []arrival) {
	select {
	case first := <-c.arriving:
		batch = append(batch, first)
	case <-ctx.Done():
		return nil
	}
	turn := c.options.Steps.Reserve()
	allowed := time.NewTimer(turn.Delay())
	defer allowed.Stop()
	for len(batch) < c.options.Most {
		select {
		case next := <-c.arriving:
			batch = append(batch, next)
		case <-allowed.C:
			return c.waiting(batch)
		case <-ctx.Done():
			return batch
		}
	}
	turn.Cancel() // a full batch waits for no turn, and later ones do not wait for it
	return batch
}

// waiting adds the pushes that are waiting now.
func (c *Collector) waiting(batch []arrival) []arrival {
	for len(batch) < c.options.Most {
		select {
		case next := <-c.arriving:
			batch = append(batch, next)
		default:
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
