package openai

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// Metrics fetches /metrics, or llama.cpp's /slots if it was started without --metrics. A
// server that can't be reached is Unavailable with engine.ServerError in the chain. A
// status other than 200 says that the server reports nothing: gateways answer paths that
// they do not know in their own ways.
func (c *Client) Metrics(ctx context.Context) (engine.ServerMetrics, error) {
	v, err := c.metrics(ctx)
	if err != nil && ctx.Err() != nil {
		return engine.UnknownMetrics(), fault.WithKind(fault.Canceled, context.Cause(ctx), "GET %s", c.base)
	}
	return v, err
}

func (c *Client) metrics(ctx context.Context) (engine.ServerMetrics, error) {
	if c.calls.isClosed() {
		return engine.UnknownMetrics(), c.closedFault()
	}
	r, err := c.get(ctx, c.root("metrics"))
	switch {
	case err != nil:
		return engine.UnknownMetrics(), err
	case r.status == http.StatusOK:
		return c.signs.ofPage(r.body), nil
	case r.status != http.StatusNotImplemented && !c.llamacpp.Load():
		return engine.UnknownMetrics(), nil
	}
	if r, err = c.get(ctx, c.root("slots")); err != nil || r.status != http.StatusOK {
		return engine.UnknownMetrics(), err
	}
	return c.signs.ofSlots(r.body), nil
}

// fromRoot returns a path from the server's root.
func (c *Client) fromRoot(path string) target {
	u := *c.base
	u.Path = path
	return c.at("GET", &u)
}

// root returns a path beside the API's /v1, where servers have endpoints that are
// not OpenAI's.
func (c *Client) root(path string) target {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/v1") + "/" + path
	return c.at("GET", &u)
}

// parseMetrics reads Prometheus' text format. Servers of several engines report a
// number for each: requests and tokens are summed, and of caches the fullest counts. It
// skips values that are not numbers. Gauges are the sum of SGLang's that change while
// its scheduler works.
func parseMetrics(page []byte) (v engine.ServerMetrics, gauges float64) {
	v = engine.UnknownMetrics()
	for line := range bytes.Lines(page) {
		if line[0] == '#' {
			continue
		}
		name, rest := line, line
		if i := bytes.IndexAny(line, "{ \t"); i > 0 {
			name, rest = line[:i], line[i:]
		}
		// vLLM, older vLLM; SGLang; llama.cpp; TGI
		switch string(name) {
		case "process_start_time_seconds":
			v.Start = text64(rest)
		case "vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing", "tgi_batch_current_size":
			add(&v.Running, rest)
		case "vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "tgi_queue_size":
			add(&v.Waiting, rest)
		case "vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total",
			"tgi_request_generated_tokens_sum":
			add(&v.Tokens, rest)
		case "llamacpp:n_decode_total", "tgi_batch_inference_count":
			add(&v.Steps, rest)
		case "vllm:kv_cache_usage_perc",
			"vllm:gpu_cache_usage_perc",
			"sglang:token_usage",
			"llamacpp:kv_cache_usage_ratio":
			if n, ok := sample(rest); ok {
				v.KVCacheUsage = max(v.KVCacheUsage, n)
			}
		case "sglang:num_used_tokens", "sglang:gen_throughput":
			add(&gauges, rest)
		case "vllm:num_preemptions_total":
			add(&v.Preempted, rest)
		}
	}
	return v, gauges
}

// value returns the text of a line's number: after the labels, which may hold any
// characters, and before the timestamp, if there is one.
func value(rest []byte) string {
	if i := bytes.LastIndexByte(rest, '}'); i >= 0 {
		rest = rest[i+1:]
	}
	for f := range bytes.FieldsSeq(rest) {
		return string(f)
	}
	return ""
}

// text64 returns the value as text of at most 64 bytes.
func text64(rest []byte) string { return text.Truncate(value(rest), 64, "") }

func sample(rest []byte) (float64, bool) {
	n, err := strconv.ParseFloat(value(rest), 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

func add(sum *float64, rest []byte) {
	if n, ok := sample(rest); ok {
		*sum = max(*sum, 0) + n
	}
}
