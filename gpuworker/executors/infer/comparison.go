package infer

import (
	"context"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
	"rollout/shared/core/blame"
	"rollout/shared/input"
	"rollout/shared/jsonl"
)

// compareNow begins a comparison on the server and waits for its end.
func (t *execution) compareNow(ctx context.Context, server string) {
	t.blame.mu.Lock()
	r := t.blame.ledger.Compare(server, t.run(), t.cfg.Clock.Now())
	t.blame.mu.Unlock()
	t.compare(ctx, r, server)
}

// compare asks the server what was answered before, and records the outcome.
func (t *execution) compare(ctx context.Context, r blame.Request, server string) {
	req := t.answeredRequest()
	req.Servers = t.only(server)
	permit, ok := t.shard.AcquirePermit(ctx, worker.Cost{PromptBytes: len(req.Body), MaxTokens: 1})
	if !ok {
		t.blame.abandon(r, t.cfg.Clock.Now())
		return
	}
	var got engine.Answer
	var err error
	t.requesters.withScratch(func(sc *scratch) { got, err = t.once(ctx, sc, req) })
	now := t.cfg.Clock.Now()
	spent := engine.UsageOf(err)
	switch {
	case err == nil:
		permit.Report(got.RateLimit)
		permit.Settle(got.Usage.PromptTokens, got.Usage.CompletionTokens, !got.Usage.Unknown)
		spent = got.Usage
		t.blame.mu.Lock()
		t.blame.ledger.Answered(r, server, now)
		t.blame.announce()
		t.blame.mu.Unlock()
	case ctx.Err() != nil:
		t.blame.abandon(r, t.cfg.Clock.Now())
	default:
		t.blame.mu.Lock()
		t.blame.ledger.Failed(r, server, failureOf(err), now)
		t.blame.announce()
		t.blame.mu.Unlock()
	}
	if err != nil {
		permit.Report(engine.RateLimitOf(err))
		permit.Fail(spent.PromptTokens, spent.CompletionTokens)
	}
	t.shard.AddWastedTokens(spent.PromptTokens+spent.CompletionTokens, spent.Unknown)
}

// answeredRequest returns a request for a comparison: one of the run that was answered.
// Where this worker knows none, it is the newest of another run, and before the first
// answer a small question.
func (t *execution) answeredRequest() engine.Request {
	if req, ok := t.knownRequest(); ok {
		return req
	}
	if item, ok := t.shard.AnsweredItem(); ok {
		t.keepExample(t.shard.Lines[item].Bytes)
	}
	if req, ok := t.knownRequest(); ok {
		return req
	}
	t.blame.mu.Lock()
	defer t.blame.mu.Unlock()
	if n := len(t.blame.good); n > 0 {
		return t.blame.good[n-1].Request
	}
	return t.smallQuestion()
}

func (t *execution) knownRequest() (engine.Request, bool) {
	t.blame.mu.Lock()
	defer t.blame.mu.Unlock()
	if req := t.blame.goodOf(t.run()); req != nil {
		return *req, true
	}
	return engine.Request{}, false
}

// keepExample keeps the request for a line of the run that another worker, or this one
// before it was restarted, had answered.
func (t *execution) keepExample(line []byte) {
	it, err := t.parse(input.Line{Bytes: line})
	if err != nil {
		return
	}
	a := &answers{execution: t, item: it, id: it.ItemID(t.model, 0)}
	t.requesters.withScratch(func(sc *scratch) {
		req := t.request(sc, a, 0, false)
		t.blame.mu.Lock()
		defer t.blame.mu.Unlock()
		t.blame.keep(t.run(), req)
	})
}

// lookUp finds out for the ledger whether the run, of which this worker knows no answer,
// has any: a worker that begins in the middle of a run may get the items that are left
// because the server refuses them.
func (t *execution) lookUp(ctx context.Context) {
	got, err := t.shard.FindAnswers(ctx)
	if err != nil {
		t.pause(ctx, lookUpAgain)
	}
	if got.Example != nil {
		t.keepExample(got.Example)
	}
	t.blame.mu.Lock()
	defer t.blame.mu.Unlock()
	if err != nil {
		t.blame.ledger.LookUpAgain(t.run())
	} else {
		t.blame.ledger.LookedUp(t.run(), got.Found)
	}
	t.blame.announce()
}

// lookUpAgain is the wait before a run's documents are read again, when they could not be.
const lookUpAgain = time.Second

// only returns the request setting for one server; nil for an engine that is one.
func (t *execution) only(server string) []string {
	if len(t.cfg.Servers) == 0 {
		return nil
	}
	return []string{server}
}

// smallQuestion returns a request for one token of the run's model.
func (t *execution) smallQuestion() engine.Request {
	body := append([]byte(`{"model":`), jsonl.AppendString(nil, t.model.URI)...)
	body = append(body, `,"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`...)
	return engine.Request{Endpoint: engine.Chat, Body: body, Options: t.options}
}
