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

// longest returns the most tokens that an answer to the item may have; 0 if nothing sets
// a limit.
func (t *execution) longest(it *dialect.Item) int64 {
	if n := it.MaxTokens(t.shard.Manifest.Config.Sampling); n > 0 {
		return n
	}
	m := &t.shard.Manifest
	return int64(t.settings.PromptMaxTokens(it, m.Config.Sampling, m.PromptMaxTokens))
}

// costOf returns what one request of the item costs.
func (t *execution) costOf(it *dialect.Item) worker.Cost {
	tools, prompt := it.Prompt()
	return worker.Cost{PromptBytes: len(tools) + len(prompt), MaxTokens: t.longest(it)}
}

// request returns the request for one decode of the item, whose body is made in the
// memory of sc.
func (t *execution) request(sc *scratch, a *answers, decode int, exclusive bool) engine.Request {
	m := &t.shard.Manifest
	made := t.settings.AppendRequest(&sc.Buffers, a.item, t.model, m.Config.Sampling, m.PromptMaxTokens, a.id, decode)
	r := engine.Request{Endpoint: engine.Endpoint(made.Endpoint), Path: made.Path, Body: made.Body, Exclusive: exclusive,
		Options: t.options, CountTokens: m.Config.Limits.Tokens > 0 || m.Config.Limits.Dollars > 0, Model: t.model.URI,
		MaxTokens: t.settings.MaxTokens(t.longest(a.item)), FitMaxTokens: made.FitMaxTokens}
	r.Streamed = r.MaxTokens > maxWholeShaped && engine.SetsShape(r.Body)
	return r
}

// maxWholeShaped is the most tokens of a whole answer whose shape the request sets: see
// engine.SetsShape.
const maxWholeShaped = 1 << 10
