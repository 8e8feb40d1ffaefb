package worker

import (
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// heartbeatLoop writes a heartbeat at every interval, and more rarely while the worker
// rests, then reads the controls of the held runs. It cancels the worker when the lease
// is lost.
func (w *Worker) heartbeatLoop(ctx context.Context, cancel context.CancelCauseFunc) {
	due := time.NewTimer(w.cfg.Timings.Interval)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.restEnds:
			due.Reset(w.untilHeartbeat())
			continue
		case <-due.C:
		}
		due.Reset(w.heartbeatWait())
		if err := w.mayWrite(); err != nil {
			w.Observe(ctx, observe.WorkerFenced{Worker: w.cfg.ID, Reason: err.Error()})
			cancel(err)
			return
		}
		if err := w.writeHeartbeat(ctx); err != nil {
			if ctx.Err() == nil {
				w.Log.WarnContext(ctx, "heartbeat failed", "error", err)
			}
			continue
		}
		w.readControls(ctx)
	}
}

// writeHeartbeat writes the heartbeat document once and renews the lease.
// Concurrent calls write one after the other.
func (w *Worker) writeHeartbeat(ctx context.Context) error {
	select {
	case w.heartbeatLock <- struct{}{}:
		defer func() { <-w.heartbeatLock }()
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, ctx.Err(), "heartbeat of worker %s", w.cfg.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timings.SelfFence)
	defer cancel()
	key := record.HeartbeatKey(w.cfg.ID)
	sent := w.Clock.Now()
	b := w.heartbeat(sent)
	w.mu.Lock()
	rev := w.heartbeatRev
	w.mu.Unlock()
	newRev, err := host.Save(ctx, w.Docs, key, b, rev)
	if fault.Is(err, fault.Conflict) {
		// Only this worker writes the document, but a write whose reply was lost
		// has changed its revision.
		var old health.Heartbeat
		var found bool
		rev, found, err = host.Load(ctx, w.Docs, key, &old)
		if err != nil {
			return err
		}
		if found && old.Worker != w.cfg.ID {
			return fault.New(fault.Fenced, "heartbeat %s belongs to %s", key, old.Worker)
		}
		newRev, err = host.Save(ctx, w.Docs, key, b, rev)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.heartbeatRev = newRev
	w.mu.Unlock()
	w.lease.renew(sent)
	late := w.lateness(sent)
	if b.State != health.Gone { // deregister reports that one
		w.Observe(ctx, observe.WorkerHeartbeat{Worker: w.cfg.ID, Pool: w.cfg.Pool, State: string(b.State),
			Shards: len(b.Holds), Busy: b.Load.InFlight, MaxInFlight: b.MaxInFlight,
			EngineAway: b.Load.UnavailableReason != "", Late: late})
	}
	return nil
}

// resting reports whether the worker has had nothing to do for a failure timeout. No
// shard depends on its lease then. The caller holds w.mu.
func (w *Worker) resting() bool {
	if taken, waiting, _ := w.slots.onlineLoad(); taken+waiting > 0 {
		return false
	}
	return w.idle() && w.state == health.Ready && w.Clock.Now().Sub(w.lastBusy) >= w.cfg.Timings.FailureTimeout
}

// heartbeatWait returns how long to wait after a heartbeat for the next one.
func (w *Worker) heartbeatWait() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resting() {
		return w.cfg.Timings.RestInterval()
	}
	return w.cfg.Timings.Interval
}

// untilHeartbeat returns how long a worker whose rest has ended waits for its next
// heartbeat: until it would have been due without the rest.
func (w *Worker) untilHeartbeat() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.cfg.Timings.Interval-w.Clock.Now().Sub(w.heartbeatSent))
}

// endRest has the loops of heartbeats and of shares return to their usual intervals. Call
// it when a resting worker receives work.
func (w *Worker) endRest() {
	for _, c := range []chan struct{}{w.restEnds, w.sharesDue} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// lateness returns how much later than it was due after the last heartbeat this one was
// sent.
func (w *Worker) lateness(sent time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, wait := w.heartbeatSent, w.cfg.Timings.Interval
	if w.resting() {
		wait = w.cfg.Timings.RestInterval()
	}
	w.heartbeatSent = sent
	if before.IsZero() {
		return 0
	}
	return max(0, sent.Sub(before)-wait)
}

// heartbeat returns the heartbeat as of now.
func (w *Worker) heartbeat(now time.Time) health.Heartbeat {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.cfg.Machine
	b := health.Heartbeat{
		Schema: record.Schema, Worker: w.cfg.ID, Pool: w.cfg.Pool, State: w.state,
		At: now.UTC(), DueAt: w.cfg.Timings.Due(now).UTC(), Started: w.started.UTC(), MaxInFlight: w.slots.size(),
		Isolation: m.Isolation, Host: m.Host, PID: m.PID, CPUs: m.CPUs, GPUs: len(m.GPUs), Instance: m.Instance,
		ProbationEngine: w.probationEngine, Control: map[identity.RunID]uint64{},
	}
	b.Load = w.stats.load(now, w.slots.busy(), w.limiter.report(), w.requestsOfRuns())
	b.Online = w.onlineReport()
	b.Kind, b.Price, b.Unclaimed = w.machine.report()
	if w.cfg.Servers != nil {
		servers := w.cfg.Servers()
		b.Load.Servers = servers[:min(len(servers), health.MaxServers)]
	}
	if w.cfg.Pipeline != nil {
		b.Load.Pipeline = w.cfg.Pipeline()
	}
	heldRuns := map[identity.RunID]bool{}
	for _, h := range w.held {
		held := health.HeldShard{Run: h.run, Shard: h.shard, Attempt: h.attempt}
		if h.work != nil {
			held.Items, held.Rows, held.AnsweredAt = h.work.progress()
			held.Training = h.work.trainingProgress()
			held.Tokens = h.work.allowance.soFar()
			held.Machine, held.TokenNanoUSD = h.work.machine.ofKind(), h.work.money.tokens.Load()
		}
		b.Holds = append(b.Holds, held)
		heldRuns[h.run] = true
	}
	slices.SortFunc(b.Holds, func(x, y health.HeldShard) int { return x.Shard - y.Shard })
	for run, c := range w.controls {
		// A control other than to run takes effect when no shard of the run is
		// held. It is acknowledged then.
		if c.desired == record.DesiredRun || !heldRuns[run] {
			b.Control[run] = c.sequence
		}
	}
	return b
}

// requestsOfRuns returns how many requests are in flight of each run of which the worker
// holds shards. The caller holds w.mu.
func (w *Worker) requestsOfRuns() map[identity.RunID]int {
	requests := map[identity.RunID]int{}
	for _, h := range w.held {
		n := 0
		if h.work != nil {
			n = h.work.inFlight.count()
		}
		requests[h.run] += n
	}
	return requests
}

// controlSeen is a run's control document as last read.
type controlSeen struct {
	sequence uint64
	desired  record.Desired
	reason   string
	refused  string    // record.Control.Refused
	at       time.Time // when it was read
}

// readControls reads the control documents of the runs whose shards are held,
// and the worker's own draining mark, and acts on them.
func (w *Worker) readControls(ctx context.Context) {
	w.mu.Lock()
	runs := map[identity.RunID]bool{}
	for _, h := range w.held {
		runs[h.run] = true
	}
	for run := range w.controls { // forget runs without held shards
		if !runs[run] {
			delete(w.controls, run)
		}
	}
	w.mu.Unlock()
	for run := range runs {
		w.ReadControl(ctx, run)
	}
	var mark record.WorkerMark
	_, _, err := host.Load(ctx, w.Docs, record.WorkerKey(w.cfg.ID), &mark)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.Log.WarnContext(ctx, "worker mark can't be read", "error", err)
	case mark.DrainReason != "":
		w.Drain(mark.DrainReason)
	}
}

// ReadControl reads the control document of a run, and stops the run's shards if it is
// to pause or end. The worker does that after each heartbeat; call it when the document
// has changed.
func (w *Worker) ReadControl(ctx context.Context, run identity.RunID) {
	if _, err := w.control(ctx, run, 0); err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "control can't be read", "run", run, "error", err)
	}
}

// maxControlAge bounds the age of a control document on which a claim relies,
// however long the heartbeat interval is (I9).
const maxControlAge = 5 * time.Second

// control returns the desired state of the run, at most maxAge old. If the run
// is to pause or end, it stops the run's held shards.
func (w *Worker) control(ctx context.Context, run identity.RunID, maxAge time.Duration) (controlSeen, error) {
	now := w.Clock.Now()
	w.mu.Lock()
	seen, ok := w.controls[run]
	w.mu.Unlock()
	if ok && now.Sub(seen.at) < maxAge {
		return seen, nil
	}
	var c record.Control
	if _, _, err := host.Load(ctx, w.Docs, record.ControlKey(run), &c); err != nil {
		return seen, err
	}
	seen = controlSeen{sequence: c.Sequence, desired: c.Desired, reason: c.Reason, refused: c.Refused, at: now}
	if seen.desired == "" {
		seen.desired = record.DesiredRun
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if newer := w.controls[run]; newer.sequence > seen.sequence { // a concurrent call read a later one
		return newer, nil
	}
	w.controls[run] = seen
	if seen.desired != record.DesiredRun {
		for _, h := range w.held {
			if h.run == run {
				h.stop(stopFor(seen.desired), func() time.Duration { return w.grace(h.manifest) })
			}
		}
	}
	return seen, nil
}

// deregister writes the last heartbeat, in the state gone, so that reclaim need
// not wait for the worker's lease to run out.
func (w *Worker) deregister(ctx context.Context) error {
	w.mu.Lock()
	w.state = health.Gone
	w.mu.Unlock()
	if err := w.writeHeartbeat(ctx); err != nil {
		return fault.Wrap(err, "deregister worker %s", w.cfg.ID)
	}
	w.Observe(ctx, observe.WorkerDeregistered{Worker: w.cfg.ID})
	return nil
}
