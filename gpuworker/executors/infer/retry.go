package infer

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
	"rollout/shared/core/blame"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// Backoff between the questions whether an engine is ready again. It doubles.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// ask asks the engine for one decode of the item until it has an answer or a fault
// that is the item's. It returns Canceled if it has neither: the shard stops, or the
// engine crashed during the request, which made the item a suspect.
// Permit is that of the first try. Exclusive says that the worker has nothing else in
// flight.
func (t *execution) ask(ctx context.Context, sc *scratch, a *answers, decode int, permit worker.Permit,
	exclusive bool) (dialect.Answer, error) {
	req := t.request(sc, a, decode, exclusive)
	i := &inquiry{item: blame.Item{Run: t.run(), Index: a.place.Item}}
	i.permit = &permit
	for {
		adm, err := t.admit(ctx, a, i)
		if err != nil {
			return dialect.Answer{}, err
		}
		permit := *i.permit
		i.permit = nil
		i.tries++
		req.Servers = nil
		if len(t.cfg.Servers) > 0 {
			req.Servers = adm.Servers
		}
		start := t.cfg.Clock.Now()
		got, err := t.once(ctx, sc, req)
		if err == nil || ctx.Err() == nil { // not a request that was cut off
			t.shard.RecordRequest(t.cfg.Clock.Now().Sub(start), err)
		}
		if err == nil {
			t.blame.answered(i.item.Run, adm.Request, got.Server, req, t.cfg.Clock.Now())
			return t.answerOf(got, req, permit), nil
		}
		spent := engine.UsageOf(err)
		t.shard.AddWastedTokens(spent.PromptTokens+spent.CompletionTokens, spent.Unknown)
		permit.Report(engine.RateLimitOf(err))
		permit.Fail(spent.PromptTokens, spent.CompletionTokens)
		wait, fatal := t.attribute(ctx, a, i, adm.Request, err)
		if fatal != nil {
			return dialect.Answer{}, fatal
		}
		if i.whitespace {
			req.Body, i.whitespace = a.bodyWithOtherSeed(decode, i.failures), false
			req.Streamed = true // so that it can be cancelled as soon as it begins again
		}
		req.Streamed = req.Streamed || isWhole(err)
		if !t.pause(ctx, wait) {
			return dialect.Answer{}, stopsBefore(a)
		}
		if err := t.weigh(ctx, a, i); err != nil {
			return dialect.Answer{}, err
		}
	}
}

// answerOf settles the permit of an answered request and returns the answer.
func (t *execution) answerOf(got engine.Answer, req engine.Request, permit worker.Permit) dialect.Answer {
	permit.Report(got.RateLimit)
	permit.Settle(got.Usage.PromptTokens, got.Usage.CompletionTokens, !got.Usage.Unknown)
	if req.FitMaxTokens { // the higher one is our default
		got.MaxTokens = 0
	}
	return dialect.Answer{Text: got.Text, FinishReason: got.FinishReason, Reasoning: got.Reasoning,
		ToolCalls: got.ToolCalls, Logprobs: got.Logprobs, Usage: dialect.Usage(got.Usage), Rest: dialect.Rest(got.Rest),
		ClampedMaxTokens: got.MaxTokens}
}

// attribute finds out whose fault a failed request is, as far as it shows by itself,
// and records the rest for the comparison with others. It returns the wait before the
// next try, or the fault with which the item ends.
func (t *execution) attribute(ctx context.Context, a *answers, i *inquiry, r blame.Request, err error) (
	wait time.Duration, _ error) {
	server, known := t.server(err)
	canceled := fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
	switch {
	case ctx.Err() != nil:
		t.blame.abandon(r, t.cfg.Clock.Now())
		return 0, canceled
	case t.recordCrash(a.index, err):
		t.blame.abandon(r, t.cfg.Clock.Now())
		return 0, canceled
	case a.isNamed(err):
		t.blame.works(r, server)
		return 0, err
	case isWhole(err): // a stream will show whose fault it is
		t.blame.abandon(r, t.cfg.Clock.Now())
		return jitter(firstBackoff, a.id, i.tries), nil
	case fault.ClassOf(err) == fault.Timeout && !fault.Is(err, fault.Unavailable), errors.Is(err, engine.ErrWhitespace):
		t.blame.abandon(r, t.cfg.Clock.Now())
		i.failures++
		i.whitespace = errors.Is(err, engine.ErrWhitespace)
		if i.failures >= t.maxFailures() {
			return 0, err
		}
		return jitter(blame.Setting.Backoff(i.failures), a.id, i.tries), nil
	case fault.Is(err, fault.Unavailable):
		stayedUp, awaitErr := t.awaitEngine(ctx, err)
		if awaitErr != nil || !stayedUp || !known || errors.Is(err, engine.ErrFailsForAll) {
			t.blame.abandon(r, t.cfg.Clock.Now())
			return jitter(firstBackoff, a.id, i.tries), awaitErr
		}
	}
	f := failureOf(err)
	if t.blame.failed(i, r, server, f, t.cfg.Clock.Now()) {
		return 0, err
	}
	i.err = err
	return max(min(f.RetryAfter, maxRefusal), jitter(f.Nature.Backoff(i.tries), a.id, i.tries)), nil
}

// weigh returns the fault of the item's last failed request if it is the item's, by
// comparison with others, and nil if the item is asked again.
func (t *execution) weigh(ctx context.Context, a *answers, i *inquiry) error {
	for i.err != nil {
		j := t.blame.weigh(i, t.maxFailures())
		switch {
		case j.Charge:
			return i.err
		case !j.Compare:
			i.err = nil
		default:
			server, _ := t.server(i.err)
			t.compareNow(ctx, server)
			if ctx.Err() != nil || t.shard.Stopped() {
				return stopsBefore(a)
			}
		}
	}
	return nil
}

// maxFailures returns how often an item may fail by itself.
func (t *execution) maxFailures() int { return max(1, t.shard.Manifest.Config.Limits.Failures) }

// stopsBefore returns the fault of a request that is not tried again.
func stopsBefore(a *answers) error {
	return fault.New(fault.Canceled, "item %d: the shard stops before the next try", a.place.Item)
}

// jitter returns a wait within the second half of d, derived from the item's id.
// Items that failed together are not retried together, and a replay waits the
// same.
func jitter(d time.Duration, item identity.ContentID, try int) time.Duration {
	random := binary.LittleEndian.Uint32(item[try%8*4:])
	return d/2 + time.Duration(float64(d/2)*float64(random)/(1<<32))
}

// isWhole reports whether the request failed because its answer was not streamed.
func isWhole(err error) bool {
	var w *engine.WholeError
	return errors.As(err, &w)
}

// once makes one request, within ProgressTimeout and RequestTimeout.
func (t *execution) once(all context.Context, sc *scratch, req engine.Request) (engine.Answer, error) {
	ctx := sc.watchdog.begin(all, limits{silence: t.cfg.ProgressTimeout, whole: t.cfg.RequestTimeout})
	defer sc.watchdog.end()
	got, err := t.cfg.Engine.Answer(ctx, req, sc.watchdog.progress)
	if err != nil && ctx.Err() != nil {
		if cause := context.Cause(ctx); fault.ClassOf(cause) == fault.Timeout {
			return got, &engine.PartialUsage{Usage: engine.UsageOf(err), Err: attributeTimeout(all, err, cause)}
		}
	}
	return got, err
}

// attributeTimeout returns the fault of a request that ended in err because of
// the timeout cause. It is the request's own, unless the server hangs for all
// requests.
func attributeTimeout(ctx context.Context, err, cause error) error {
	var hang *engine.HangError
	switch {
	case !errors.As(err, &hang):
	case hang.ServerAtFault(ctx):
		return fault.WithKind(fault.Unavailable, cause, "the engine answers no request")
	case hang.Whole:
		return &engine.WholeError{Err: cause}
	}
	return cause
}

// awaitEngine waits until an engine whose connection broke is ready again.
// StayedUp says that it was ready at once. The wait counts as no failure. After
// MaxOutage the shard is released.
func (t *execution) awaitEngine(ctx context.Context, brokenBy error) (stayedUp bool, err error) {
	until := t.cfg.Clock.Now().Add(t.cfg.MaxOutage)
	stayedUp = true
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		ready := t.Ready(ctx)
		t.shard.ReportReady(ready)
		if ready == nil {
			return stayedUp, nil
		}
		stayedUp = false
		if !t.cfg.Clock.Now().Before(until) {
			t.abort(fault.Wrap(brokenBy, "the engine has been down for %s", t.cfg.MaxOutage))
		}
		if !t.pause(ctx, backoff) {
			return false, fault.WithKind(fault.Canceled, brokenBy, "wait for the engine")
		}
	}
}

// pause waits for d. It returns false if the shard stops or ctx ends first: then
// nothing more may begin.
func (t *execution) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.shard.Stopping():
	case <-ctx.Done():
	}
	return false
}
