package infer

import (
	"net/http"
	"net/url"

	"rollout/gpuworker/engine"
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

// request returns the request for one decode of the item, whose body is made in the
// memory of sc.
func (t *execution) request(sc *scratch, a *answers, decode int, exclusive bool) engine.Request {
	c := t.shard.Manifest.Config
	r := engine.Request{Endpoint: engine.Endpoint(a.item.Endpoint), Exclusive: exclusive, Options: t.options,
		CountTokens: c.Limits.Tokens > 0}
	e, _ := t.settings.Target(a.item) // parse has checked it
	if n := t.shard.Manifest.PromptMaxTokens; n > 0 && e == dialect.Completion && a.item.MaxTokens(c.Sampling) == 0 &&
		!t.settings.Sets("max_tokens") {
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
	return r
}
