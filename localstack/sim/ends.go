package sim

import (
	"context"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/host"
	"rollout/shared/record"
)

const (
	// grace is that of all runs.
	grace = 3 * time.Second
	// heedsStop bounds the time from a user's stop to the step that ends the run, and
	// heedsDeadline that from the deadline, of which only a timer tells.
	heedsStop     = 3 * time.Second
	heedsDeadline = 8 * time.Second
	// pausesWithin bounds the time from a user's pause until the run is paused.
	pausesWithin = 15 * time.Second
)

// failures are the error rows of the ended run: of items that failed by themselves, of
// items that the end left without an answer, and all but pruned ones.
type failures struct{ own, unanswered, all int }

// checkEnd checks that the run has ended as its plot must, in the phase that its rows
// make.
func (s *scenario) checkEnd(ctx context.Context, st run.State, f failures) {
	late := func(since time.Time, most time.Duration) bool {
		s.audit.mu.Lock()
		defer s.audit.mu.Unlock()
		at, known := s.audit.complete[s.id]
		return known && at.Sub(since) > most
	}
	may, must := run.ReasonDone, false // the other reason for which it may end, and whether it must
	switch s.action {
	case stops:
		if at, ok := s.spending.endOf(s.id); ok {
			may, must = run.ReasonStopped, late(at, heedsStop)
		}
	case expires:
		deadline := s.manifest(ctx).CreatedAt.Add(s.cfg.Limits.Deadline.Std())
		may, must = run.ReasonExpired, late(deadline, heedsDeadline)
	case exhaustsBudget:
		may = run.ReasonBudget // checkBudget says when it must
	case failsFast:
		// The row of the item that failed may be lost, and an event about an unknown shard
		// ends such a run, too.
		may, must = run.ReasonFailFast, f.own > 0 && !s.cfg.Dedupe.Enabled
		if st.Reason == run.ReasonWorkerLost { // workers are killed and frozen in most worlds
			may = run.ReasonWorkerLost
		}
	}
	isBroken := s.tickets != nil && s.tickets.reference.invalid != nil
	if isBroken && (st.Reason == run.ReasonDone || st.Reason == run.ReasonInputBroken) {
		may, must = run.ReasonInputBroken, true
	}
	if st.Reason != may && (must || st.Reason != run.ReasonDone) {
		s.audit.breakf("the run has ended for the reason %s (%s), want %s", st.Reason, st.Message, may)
	}
	want := run.Completed
	if f.all > 0 || s.tickets != nil && s.tickets.refused > 0 {
		want = run.CompletedWithErrors
	}
	if st.Reason != run.ReasonDone {
		want = st.Reason.Phase(st.Counts, 0)
	}
	if st.Phase != want {
		s.audit.breakf("the run has ended as %s for the reason %s with %+v rows", st.Phase, st.Reason, f)
	}
	if st.Reason == run.ReasonDone && f.unanswered > 0 {
		s.audit.breakf("the run is done, and %d items have no answer", f.unanswered)
	}
}

func (s *scenario) manifest(ctx context.Context) record.Manifest {
	m, err := host.LoadManifest(ctx, s.docs, s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// checkPaused checks that a run that its user has paused so long ago is paused, or ends.
func (s *scenario) checkPaused(ctx context.Context, id identity.RunID, since time.Duration) {
	st, found := s.state(ctx, id)
	if found && since > pausesWithin && (st.Phase == run.Planning || st.Phase == run.Running || st.Phase == run.Pausing) {
		s.audit.breakf("the run is %s %s after its user has paused it", st.Phase, since)
	}
}

// unansweredItems is what a run that has ended before it was done must have answered.
type unansweredItems struct {
	committed interval.Set // items with an answer in a shard's checkpoint or result
	shards    []plannedShard
	maxTokens int // that requests have by default
}

// findCommitted reads which items have an answer in the documents of an ended run.
func (s *scenario) findCommitted(ctx context.Context, st run.State) (u unansweredItems) {
	if st.Reason == run.ReasonDone {
		return u
	}
	u.shards, u.maxTokens = s.plannedShards(ctx, st), s.manifest(ctx).PromptMaxTokens
	for _, p := range u.shards {
		d := s.audit.shards[identity.ShardKey(s.id, p.number)]
		if d.Result != nil {
			u.committed.AddRange(p.items)
			continue
		}
		for _, r := range s.rowsOf(ctx, d) {
			u.committed.Add(p.items.Lo + r.Item)
		}
	}
	return u
}

// mayMiss checks that an item of a run that has ended early may be without an answer: no
// document has it, and no worker had it when it ended the item's shard.
func (s *scenario) mayMiss(it item) {
	n := int(it.place.Item)
	if s.ended.committed.Has(n) {
		s.audit.breakf("item %d has a committed row, and an error row that says that it has none", n)
	}
	if len(s.cfg.Grades) > 0 {
		return // an answer that waits for its score is not final
	}
	at, worker, ok := s.answeredAt(it)
	for _, p := range s.ended.shards {
		if !ok || n < p.items.Lo || n >= p.items.Hi {
			continue
		}
		key := identity.ShardKey(s.id, p.number)
		d, sealed := s.audit.shards[key], s.audit.sealed[key]
		if d.State == shard.Done && sealed.by == worker && at.After(d.ClaimedAt.Add(s.timings.SkewBudget)) &&
			at.Before(sealed.at.Add(-time.Second)) {
			s.audit.breakf("item %d was answered to %s at %s, which ended its shard at %s without the answer", n, worker,
				at.Sub(s.startedAt), sealed.at.Sub(s.startedAt))
		}
	}
}

// sealing is who has sealed a shard, and when.
type sealing struct {
	by string
	at time.Time
}

// bodyOf returns the request of a line that is that item; false for a line without one.
func (s *scenario) bodyOf(l line, item uint64) (body []byte, ok bool) {
	parsed, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		return nil, false
	}
	model, sampling := s.model(l)
	if n := s.ended.maxTokens; n > 0 && parsed.Endpoint == dialect.Completion {
		sampling.MaxTokens = &n
	}
	return parsed.Body(nil, model.URI, sampling, parsed.ItemID(model, item), 0), true
}

// answeredAt returns when the item's request was answered last, and to which worker.
func (s *scenario) answeredAt(it item) (at time.Time, worker string, ok bool) {
	body, ok := s.bodyOf(it.line, it.place.Item)
	if !ok {
		return at, "", false
	}
	s.spending.mu.Lock()
	defer s.spending.mu.Unlock()
	a, ok := s.spending.bodies[string(body)]
	return a.at, a.worker, ok
}
