package infer

import (
	"net/http"
	"net/url"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/dialect"
)

// optionsOf returns what a run's config asks of its requests beside their bodies; nil
// for nothing.
func optionsOf(run *config.Request, settings *dialect.Settings) *engine.Options {
	if settings == nil {
		return nil
	}
	o := &engine.Options{Whole: settings.Omits("stream"), NoStreamOptions: settings.Omits("stream_options")}
	if run == nil {
		return o
	}
	for name, value := range run.Headers {
		if o.Header == nil {
			o.Header = http.Header{}
		}
		o.Header.Set(name, value)
	}
	for name, value := range run.Query {
		if o.Query == nil {
			o.Query = url.Values{}
		}
		o.Query.Set(name, value)
	}
	return o
}

// promptMaxTokens returns the run's default of max_tokens if the item is a raw prompt for
// which nothing else sets one; else 0.
func (t *execution) promptMaxTokens(it *dialect.Item, e dialect.Endpoint) int {
	m := &t.shard.Manifest
	if e != dialect.Completion || it.MaxTokens(m.Config.Sampling) > 0 || t.settings.Sets("max_tokens") {
		return 0
	}
	return m.PromptMaxTokens
}

// longest returns the most tokens that an answer to the item may have; 0 if nothing sets
// a limit.
func (t *execution) longest(it *dialect.Item) int64 {
	if n := it.MaxTokens(t.shard.Manifest.Config.Sampling); n > 0 {
		return n
	}
	e, _ := t.settings.Target(it) // parse has checked it
	return int64(t.promptMaxTokens(it, e))
}

// costOf returns what one request of the item costs.
func (t *execution) costOf(it *dialect.Item) worker.Cost {
	tools, prompt := it.Prompt()
	return worker.Cost{PromptBytes: len(tools) + len(prompt), MaxTokens: t.longest(it)}
}

// request returns the request for one decode of the item, whose body is made in the
// memory of sc.
func (t *execution) request(sc *scratch, a *answers, decode int, exclusive bool) engine.Request {
	c := t.shard.Manifest.Config
	r := engine.Request{Endpoint: engine.Endpoint(a.item.Endpoint), Exclusive: exclusive, Options: t.options,
		CountTokens: c.Limits.Tokens > 0, Model: t.model.URI, MaxTokens: t.settings.MaxTokens(t.longest(a.item))}
	e, _ := t.settings.Target(a.item) // parse has checked it
	if n := t.promptMaxTokens(a.item, e); n > 0 {
		c.Sampling.MaxTokens, r.FitMaxTokens = &n, true
	}
	sc.body = a.item.Body(sc.body[:0], t.model.URI, c.Sampling, a.id, decode)
	r.Body = sc.body
	switch {
	case t.settings != nil:
		r.Endpoint, r.Path = engine.Endpoint(e), t.settings.Path(a.item)
		sc.applied = t.settings.Apply(sc.applied[:0], a.item, e, sc.body)
		r.Body = sc.applied
	case !e.Samples():
		var none dialect.Settings
		sc.applied = none.Apply(sc.applied[:0], a.item, e, sc.body)
		r.Body = sc.applied
	}
	r.Streamed = r.MaxTokens > maxWholeShaped && engine.SetsShape(r.Body)
	return r
}

// maxWholeShaped is the most tokens of a whole answer whose shape the request sets: see
// engine.SetsShape.
const maxWholeShaped = 1 << 10
