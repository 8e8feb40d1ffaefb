package infer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// Back-off between asks of one request: doubling, with jitter.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// maxBreaks is how often the connection to an engine that stays up may break
// during one request before that is the request's own failure. It is more than
// a network drops by chance.
const maxBreaks = 8

// ask asks the engine for one decode of the item until there is an answer or
// a fault that is the item's own. Canceled means that there is neither: the
// shard stops, or the engine died meanwhile, which made the item a suspect.
// alone says that nothing else of the worker is in flight.
func (t *execution) ask(ctx context.Context, h *scratch, a *answers, decode int, alone bool) (dialect.Answer, error) {
	sampling := t.shard.Manifest.Config.Sampling
	h.body = a.item.Body(h.body[:0], t.model.URI, sampling, a.id, decode)
	req := engine.Request{Endpoint: engine.Endpoint(a.item.Endpoint), Body: h.body, Exclusive: alone}
	tries, failures, breaks, allowed := 0, 0, 0, max(1, t.shard.Manifest.Config.Limits.Failures)
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		var hint time.Duration // the least wait that the engine asks for
		start := t.cfg.Clock.Now()
		got, err := t.once(ctx, h, req)
		if err == nil || ctx.Err() == nil { // not one that was cut off
			t.shard.RecordRequest(t.cfg.Clock.Now().Sub(start), err)
		}
		if err == nil {
			t.refusal.answered()
			return dialect.Answer{Text: got.Text, FinishReason: got.FinishReason, Reasoning: got.Reasoning, ToolCalls: got.ToolCalls,
				Logprobs: got.Logprobs, Usage: dialect.Usage(got.Usage), ClampedMaxTokens: got.MaxTokens}, nil
		}
		spent := engine.UsageOf(err)
		t.shard.AddWastedTokens(spent.PromptTokens + spent.CompletionTokens)
		if ctx.Err() != nil {
			return dialect.Answer{}, fault.WithKind(fault.Canceled, ctx.Err(), "answer item %d", a.place.Item)
		}
		switch fault.KindOf(err) {
		case fault.Invalid: // the request's own fault
			return dialect.Answer{}, err
		case fault.Denied: // every request's fault
			t.abort(err)
			return dialect.Answer{}, fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
		case fault.Unavailable:
			if t.recordCrash(a.index, err) {
				return dialect.Answer{}, fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
			}
			stayed, awaitErr := t.awaitEngine(ctx, err)
			if awaitErr != nil {
				return dialect.Answer{}, awaitErr
			}
			if stayed {
				breaks++
			}
			if breaks >= maxBreaks {
				return dialect.Answer{}, &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Err: err,
					Op: fmt.Sprintf("the engine broke off %d times and was ready at once", breaks)}
			}
		case fault.Throttled:
			hint = fault.RetryAfter(err)
			left := maxRefusal - t.refusal.refused(t.cfg.Clock.Now(), hint, err)
			if left <= 0 {
				t.abort(fault.WithKind(fault.Unavailable, err, "the engine has refused everything for %s", maxRefusal))
				return dialect.Answer{}, fault.WithKind(fault.Canceled, err, "answer item %d", a.place.Item)
			}
			hint = min(hint, left)
		default: // a failure, charged to the item
			failures++
			if failures >= allowed {
				return dialect.Answer{}, err
			}
			if errors.Is(err, engine.ErrWhitespace) {
				req.Body = a.otherwise(decode, failures)
			}
		}
		tries++
		if !t.pause(ctx, max(hint, jitter(backoff, a.id, tries))) {
			return dialect.Answer{}, fault.New(fault.Canceled, "item %d waits for the engine while its shard stops", a.place.Item)
		}
	}
}

// jitter spreads a back-off over its second half, by item: items that failed
// together do not come back together, and a replay waits the same.
func jitter(d time.Duration, item identity.ContentID, try int) time.Duration {
	dice := binary.LittleEndian.Uint32(item[try%8*4:])
	return d/2 + time.Duration(float64(d/2)*float64(dice)/(1<<32))
}

// once asks the engine once, within the deadlines on progress and as a whole.
func (t *execution) once(all context.Context, h *scratch, req engine.Request) (engine.Answer, error) {
	ctx := h.watch.begin(all, limits{silence: t.cfg.ProgressTimeout, whole: t.cfg.RequestTimeout})
	defer h.watch.end()
	got, err := t.cfg.Engine.Answer(ctx, req, h.watch.sign)
	if err != nil && ctx.Err() != nil {
		if cause := context.Cause(ctx); fault.ClassOf(cause) == fault.Timeout {
			return got, &engine.PartialUsage{Usage: engine.UsageOf(err), Err: whoseHang(all, err, cause)}
		}
	}
	return got, err
}

// whoseHang is the fault of a request that ended in err because of the cause,
// its deadline: its own, unless the server answers nobody.
func whoseHang(ctx context.Context, err, cause error) error {
	var hung *engine.HangError
	if errors.As(err, &hung) && hung.ServerAtFault(ctx) {
		return fault.WithKind(fault.Unavailable, cause, "the engine answers nobody")
	}
	return cause
}

// awaitEngine waits until an engine that broke off can answer again; stayed
// says that it could at once. It charges nobody. When the engine stays away,
// the shard goes back.
func (t *execution) awaitEngine(ctx context.Context, why error) (stayed bool, err error) {
	until := t.cfg.Clock.Now().Add(t.cfg.MaxOutage)
	stayed = true
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		ready := t.Ready(ctx)
		t.shard.ReportReady(ready)
		if ready == nil {
			return stayed, nil
		}
		stayed = false
		if !t.cfg.Clock.Now().Before(until) {
			t.abort(fault.Wrap(why, "the engine has been away for %s", t.cfg.MaxOutage))
		}
		if !t.pause(ctx, backoff) {
			return false, fault.WithKind(fault.Canceled, why, "wait for the engine")
		}
	}
}

// pause waits; false if the shard stops or ctx ends meanwhile: then nothing is
// begun any more.
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
