package inprocess

import (
	"context"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Waits of the consumers.
const (
	longPoll   = time.Second
	retryAfter = 200 * time.Millisecond // a message whose handler failed
	lastRetry  = 30 * time.Second
)

// consume handles a queue's messages one by one. A handler that takes long
// keeps its message hidden; one that fails lets it come back later.
func (s *System) consume(ctx context.Context, q string, handle func(context.Context, events.Payload) error) {
	for ctx.Err() == nil {
		ms, err := s.Queues.Receive(ctx, q, 1, s.visibility, longPoll)
		if err != nil {
			s.warn(ctx, "queue can't be received", err, "queue", q)
			sleep(ctx, retryAfter)
			continue
		}
		for _, m := range ms {
			s.deliver(ctx, q, m, handle)
		}
	}
}

func (s *System) deliver(ctx context.Context, q string, m queue.Message, handle func(context.Context, events.Payload) error) {
	e, p, err := events.Decode(m.Body)
	err = fault.WithKind(fault.Invalid, err, "decode event")
	if err == nil {
		err = s.handleExtending(host.WithCause(observe.ContextWithTraceparent(ctx, e.Traceparent), e), q, m, p, handle)
	}
	switch {
	case err == nil:
		err = s.Queues.Ack(ctx, q, []string{m.Receipt})
	case fault.Is(err, fault.Invalid):
		err = s.DeadLetter(ctx, q, m, err)
	default:
		s.warn(ctx, "event not handled; it comes back", err, "queue", q, "message", m.ID)
		err = s.Queues.Nack(ctx, q, m.Receipt, min(retryAfter<<min(m.Receives, 10), lastRetry))
	}
	if err != nil {
		s.warn(ctx, "message not settled; it comes back", err, "queue", q, "message", m.ID)
	}
}

// handleExtending calls the handler and keeps the message hidden meanwhile.
func (s *System) handleExtending(ctx context.Context, q string, m queue.Message, p events.Payload, handle func(context.Context, events.Payload) error) error {
	done := make(chan error, 1)
	go func() { done <- handle(ctx, p) }()
	keep := time.NewTicker(s.visibility / 3)
	defer keep.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-keep.C:
			if err := s.Queues.Extend(ctx, q, m.Receipt, s.visibility); err != nil {
				s.warn(ctx, "message not kept; it may be handled twice", err, "queue", q, "message", m.ID)
			}
		}
	}
}

// dispatch calls the function that a task is for.
func (s *System) dispatch(ctx context.Context, p events.Payload) error {
	switch p := p.(type) {
	case events.ObjectCreated:
		return s.submit.Uploaded(ctx, p)
	case events.RunSubmitted:
		return s.plan.Submitted(ctx, p)
	case events.PlanRange:
		return s.plan.CutRange(ctx, p)
	case events.Finalize:
		return s.finalizeOrWait(ctx, p)
	case events.FinalizeSegment:
		return s.finalize.WriteSegment(ctx, p)
	}
	return fault.New(fault.Invalid, "event %T is no task", p)
}

// watchUploads submits what appears in the bucket.
func (s *System) watchUploads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case info, ok := <-s.cfg.Uploads:
			if !ok {
				return
			}
			s.uploaded(ctx, info)
		}
	}
}

// uploaded announces an object; it is announced until a queue has it.
func (s *System) uploaded(ctx context.Context, info blob.Info) {
	e := events.ObjectCreated{Bucket: s.cfg.Deployment.Bucket, Key: info.Key, Version: info.Version, Size: info.Size}
	for wait := retryAfter; ctx.Err() == nil; wait = min(2*wait, lastRetry) {
		err := s.WithSource("bucket").Send(ctx, host.TaskQueue, e)
		if err == nil {
			return
		}
		s.warn(ctx, "upload not announced yet", err, "key", info.Key)
		if fault.Is(err, fault.Invalid) {
			return
		}
		sleep(ctx, wait)
	}
}

// maxBatch is how many events coordinate takes at once.
const maxBatch = 1000

// runCoordinate hands coordinate what happened, in batches.
func (s *System) runCoordinate(ctx context.Context) {
	for ctx.Err() == nil {
		ms, err := s.Queues.Receive(ctx, host.CoordinateQueue, maxBatch, s.visibility, longPoll)
		if err != nil {
			s.warn(ctx, "queue can't be received", err, "queue", host.CoordinateQueue)
			sleep(ctx, retryAfter)
			continue
		}
		if len(ms) == 0 {
			continue
		}
		next := time.NewTimer(s.cfg.BatchDelay)
		done := s.coordinate.HandleBatch(ctx, ms)
		if len(done) > 0 {
			if err := s.Queues.Ack(ctx, host.CoordinateQueue, done); err != nil {
				s.warn(ctx, "events not acknowledged; they come back", err)
			}
		}
		s.nackRest(ctx, ms, done)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
		}
	}
}

// nackRest lets messages that are not done with come back soon.
func (s *System) nackRest(ctx context.Context, ms []queue.Message, done []string) {
	if len(done) == len(ms) {
		return
	}
	settled := map[string]bool{}
	for _, r := range done {
		settled[r] = true
	}
	for _, m := range ms {
		if settled[m.Receipt] {
			continue
		}
		if err := s.Queues.Nack(ctx, host.CoordinateQueue, m.Receipt, min(retryAfter<<min(m.Receives, 10), lastRetry)); err != nil {
			s.warn(ctx, "message not settled; it comes back", err, "message", m.ID)
		}
	}
}

// runReclaim scans every half heartbeat interval.
func (s *System) runReclaim(ctx context.Context) {
	if err := s.reclaim.WakeAll(ctx); err != nil {
		s.warn(ctx, "open runs not rung", err)
	}
	tick := time.NewTicker(max(time.Millisecond, s.cfg.Deployment.Health.Interval.Std()/2))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.reclaim.Scan(ctx); err != nil {
				s.warn(ctx, "scan failed", err)
			}
		}
	}
}

// warn logs an error, unless the process is ending.
func (s *System) warn(ctx context.Context, what string, err error, args ...any) {
	if ctx.Err() == nil {
		s.Log.WarnContext(ctx, what, append(args, "error", err)...)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
