package inprocess

import (
	"context"
	"time"

	"rollout/events"
	"rollout/functions/reclaim"
	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Waits of the consumers.
const (
	longPoll   = 5 * time.Second        // the queues of a folder wake a receiver before
	retryAfter = 200 * time.Millisecond // first retry of a failed message; it doubles
	lastRetry  = 30 * time.Second       // and is at most this long
)

// handler handles one event.
type handler = func(context.Context, events.Payload) error

// consume handles a queue's messages one by one until ctx ends.
func (s *System) consume(ctx context.Context, q string, handle handler) {
	for ctx.Err() == nil {
		ms, err := s.Queues.Receive(ctx, q, 1, s.visibility, longPoll)
		if err != nil {
			s.warn(ctx, "can't receive from a queue", err, observe.KeyQueue, q)
			sleep(ctx, retryAfter)
			continue
		}
		for _, m := range ms {
			s.deliver(ctx, q, m, handle)
		}
	}
}

// deliver handles one message, and acknowledges, dead-letters or returns it.
func (s *System) deliver(ctx context.Context, q string, m queue.Message, handle handler) {
	e, p, err := events.Decode(m.Body)
	err = fault.WithKind(fault.Invalid, err, "decode event")
	if err == nil {
		ctx := host.WithCause(observe.ContextWithTraceparent(ctx, e.Traceparent), e)
		err = s.keepHidden(ctx, q, m, func() error { return handle(ctx, p) })
	}
	switch {
	case err == nil, host.IsExpired(err): // for an expired run nothing is left to do
		err = s.Queues.Ack(ctx, q, []string{m.Receipt})
	case fault.Is(err, fault.Invalid):
		err = s.DeadLetter(ctx, q, m, err)
	default:
		s.warn(ctx, "event not handled: it is delivered again", err, observe.KeyQueue, q, observe.KeyMessage, m.ID)
		err = s.Queues.Nack(ctx, q, m.Receipt, retryDelay(m))
	}
	if err != nil {
		s.warn(ctx, "message not settled: it is delivered again", err, observe.KeyQueue, q, observe.KeyMessage, m.ID)
	}
}

// retryDelay is how long after a failure a message is delivered again.
func retryDelay(m queue.Message) time.Duration {
	return min(retryAfter<<min(m.Receives, 10), lastRetry)
}

// keepHidden calls handle, and extends the message's visibility meanwhile.
func (s *System) keepHidden(ctx context.Context, q string, m queue.Message, handle func() error) error {
	done := make(chan error, 1)
	go func() { done <- handle() }()
	tick := time.NewTicker(s.visibility / 3)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if err := s.Queues.Extend(ctx, q, m.Receipt, s.visibility); err != nil {
				s.warn(ctx, "message not extended: it may be handled twice", err,
					observe.KeyQueue, q, observe.KeyMessage, m.ID)
			}
		}
	}
}

// dispatch calls the function that an event of the tasks or plan queue is for.
func (s *System) dispatch(ctx context.Context, p events.Payload) error {
	switch p := p.(type) {
	case events.ObjectCreated:
		return s.submit.Uploaded(ctx, p)
	case events.RetryRequested:
		return s.submit.Retry(ctx, p)
	case events.BatchRequested:
		return s.submit.Batch(ctx, p)
	case events.RunSubmitted:
		return s.plan.Submitted(ctx, p)
	case events.PlanRange:
		return s.plan.CutRange(ctx, p)
	case events.Finalize:
		return s.finalizeOrWait(ctx, p)
	case events.FinalizeSegment:
		return s.finalize.WriteSegment(ctx, p)
	}
	return fault.New(fault.Invalid, "event %T is not for submit, plan or finalize", p)
}

// watchUploads announces the objects that appear in the bucket.
func (s *System) watchUploads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u, ok := <-s.cfg.Uploads:
			if !ok {
				return
			}
			s.uploaded(ctx, u)
		}
	}
}

// uploaded sends the event of an object. It retries until the queue has accepted it.
func (s *System) uploaded(ctx context.Context, u blob.Upload) {
	e := events.ObjectCreated{Bucket: s.cfg.Deployment.Bucket, Key: u.Key, Version: u.Version, Size: u.Size,
		Found: string(u.Found)}
	for wait := retryAfter; ctx.Err() == nil; wait = min(2*wait, lastRetry) {
		err := s.WithSource("bucket").Send(ctx, host.TaskQueue, e)
		if err == nil {
			return
		}
		s.warn(ctx, "upload not announced: trying again", err, "key", u.Key)
		if fault.Is(err, fault.Invalid) {
			return
		}
		sleep(ctx, wait)
	}
}

// maxBatch bounds the events in a batch for coordinate.
const maxBatch = 1000

// runCoordinate passes events to coordinate in batches, at most one batch for
// each BatchDelay.
func (s *System) runCoordinate(ctx context.Context) {
	for ctx.Err() == nil {
		ms, err := s.Queues.Receive(ctx, host.CoordinateQueue, maxBatch, s.visibility, longPoll)
		if err != nil {
			s.warn(ctx, "can't receive from a queue", err, observe.KeyQueue, host.CoordinateQueue)
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
				s.warn(ctx, "events not acknowledged: they are delivered again", err)
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

// nackRest returns the messages that coordinate is not done with for a retry.
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
		if err := s.Queues.Nack(ctx, host.CoordinateQueue, m.Receipt, retryDelay(m)); err != nil {
			s.warn(ctx, "message not settled: it is delivered again", err, observe.KeyMessage, m.ID)
		}
	}
}

// runReclaim wakes all open runs, and then scans every half heartbeat interval; rarely while
// no run is open, until a run is saved: it was opened, or its end is waited for.
func (s *System) runReclaim(ctx context.Context) {
	if err := s.reclaim.WakeAll(ctx); err != nil {
		s.warn(ctx, "open runs not woken", err)
	}
	every := max(time.Millisecond, s.cfg.Deployment.Health.Interval.Std()/2)
	next, scanned := time.NewTimer(every), time.Now()
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.saved: // saves, however many, never put a scan off
			next.Reset(every - time.Since(scanned))
		case <-next.C:
			if err := s.reclaim.Scan(ctx); err != nil {
				s.warn(ctx, "scan failed", err)
			}
			wait := every
			if s.reclaim.Idle() {
				wait *= idleScans
			}
			next.Reset(wait)
			scanned = time.Now()
		}
	}
}

// idleScans is how many times rarer scans are while no run is open: then the death of a
// worker delays nothing.
const idleScans = 8

// buildIndex enters the runs of an earlier version into the index of runs. It is a read
// where that was done before.
func (s *System) buildIndex(ctx context.Context) {
	if err := s.reclaim.BuildIndex(ctx, 0); err != nil {
		s.warn(ctx, "the index of runs is not complete: listing runs is slow until the next start", err)
	}
}

// runSweep deletes what uploads to the batch API have left behind: an earlier process, and every hour
// this one.
func (s *System) runSweep(ctx context.Context) {
	tick := time.NewTicker(reclaim.UploadScanInterval)
	defer tick.Stop()
	for {
		if err := reclaim.SweepOrphans(ctx, s.Ports, reclaim.SweepOptions{}); err != nil {
			s.warn(ctx, "what uploads have left behind is not deleted: trying again in an hour", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// runUploadScan looks every hour for uploads that have not become runs. The bucket's watch
// announces those that are there when the process starts. Whether a lost event was of one
// of these is not known any more, so that an object with the bytes, the key and the config
// of an earlier run is that run.
func (s *System) runUploadScan(ctx context.Context) {
	tick := time.NewTicker(reclaim.UploadScanInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o := reclaim.UploadOptions{Bucket: s.cfg.Deployment.Bucket, Found: blob.Kept}
			if err := reclaim.ScanUploads(ctx, s.Ports, o); err != nil {
				s.warn(ctx, "scan failed", err)
			}
		}
	}
}

// warn logs an error, unless ctx has ended: then the process stops.
func (s *System) warn(ctx context.Context, what string, err error, args ...any) {
	if ctx.Err() == nil {
		s.Log.WarnContext(ctx, what, append(args, observe.KeyError, err)...)
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
