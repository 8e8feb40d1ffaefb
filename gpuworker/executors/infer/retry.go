package infer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// Backoff between the tries of one request. It doubles, with jitter.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// maxBreaks is how often the connection may break during one request while the
// engine stays up, before that counts as the request's own failure. Networks
// don't drop that many connections by chance.
const maxBreaks = 8

// ask asks the engine for one decode of the item until it has an answer or a
// fault of the item. It returns Canceled if it has neither: the shard stops, or
// the engine crashed during the request, which made the item a suspect.
// Permit is that of the first try. Exclusive says that the worker has nothing else in
// flight.
func (t *execution) ask(ctx context.Context, sc *scratch, a *answers, decode int, permit worker.Permit,
	exclusive bool) (dialect.Answer, error) {
	req := t.request(sc, a, decode, exclusive)
	tries, failures, breaks := 0, 0, 0
	maxFailures := max(1, t.shard.Manifest.Config.Limits.Failures)
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		var hint time.Duration // the least wait that the engine asks for
		start := t.cfg.Clock.Now()
		got, err := t.once(ctx, sc, req)
		if err == nil || ctx.Err() == nil { // not a request that was cut off
			t.shard.RecordRequest(t.cfg.Clock.Now().Sub(start), err)
		}
		if err == nil {
			t.refusal.answered()
			permit.Settle(got.Usage.PromptTokens, got.Usage.CompletionTokens, !got.Usage.Unknown)
			if req.FitMaxTokens { // the higher one is our default
				got.MaxTokens = 0
			}
			return dialect.Answer{Text: got.Text, FinishReason: got.FinishReason, Reasoning: got.Reasoning,
				ToolCalls: got.ToolCalls, Logprobs: got.Logprobs, Usage: dialect.Usage(got.Usage), Rest: dialect.Rest(got.Rest),
				ClampedMaxTokens: got.MaxTokens}, nil
		}
		spent := engine.UsageOf(err)
		t.shard.AddWastedTokens(spent.PromptTokens + spent.CompletionTokens)
		permit.Fail(spent.PromptTokens + spent.CompletionTokens)
		if ctx.Err() != nil {
			return dialect.Answer{}, fault.WithKind(fault.Canceled, ctx.Err(), "answer item %d", a.place.Item)
		}
		switch fault.KindOf(err) {
		case fault.Invalid: // a fault of the request
			return dialect.Answer{}, err
		case fault.Denied: // concerns every request
			t.abort(err)
			return dialect.Answer{}, fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
		case fault.Unavailable:
			if t.recordCrash(a.index, err) {
				return dialect.Answer{}, fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
			}
			stayedUp, awaitErr := t.awaitEngine(ctx, err)
			if awaitErr != nil {
				return dialect.Answer{}, awaitErr
			}
			if stayedUp {
				breaks++
			}
			if breaks >= maxBreaks {
				return dialect.Answer{}, &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Err: err,
					Op: fmt.Sprintf("the connection broke %d times although the server stayed ready", breaks)}
			}
		case fault.Throttled:
			hint = fault.RetryAfter(err)
			left := maxRefusal - t.refusal.refused(t.cfg.Clock.Now(), hint, err)
			if left <= 0 {
				t.abort(fault.WithKind(fault.Unavailable, err, "the engine has refused all requests for %s", maxRefusal))
				return dialect.Answer{}, fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
			}
			hint = min(hint, left)
		default: // a failure, charged to the item
			failures++
			if failures >= maxFailures {
				return dialect.Answer{}, err
			}
			if errors.Is(err, engine.ErrWhitespace) {
				req.Body = a.bodyWithOtherSeed(decode, failures)
			}
		}
		tries++
		if !t.pause(ctx, max(hint, jitter(backoff, a.id, tries))) {
			return dialect.Answer{}, stopsBefore(a)
		}
		var ok bool
		if permit, ok = t.shard.AcquirePermit(ctx, a.cost); !ok {
			return dialect.Answer{}, stopsBefore(a)
		}
	}
}

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
	if errors.As(err, &hang) && hang.ServerAtFault(ctx) {
		return fault.WithKind(fault.Unavailable, cause, "the engine answers no request")
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
