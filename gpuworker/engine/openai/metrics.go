package openai

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strconv"
	"strings"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// Metrics asks /metrics what the server does, or /health alone where there are
// none. A server that refuses connections is Unavailable with Trouble in the
// chain; one that answers anything but a 200 is so without.
func (c *Client) Metrics(ctx context.Context) (engine.ServerMetrics, error) {
	v, err := c.vitals(ctx)
	if err != nil && ctx.Err() != nil {
		return engine.UnknownMetrics(), fault.WithKind(fault.Canceled, context.Cause(ctx), "GET %s", c.base)
	}
	return v, err
}

func (c *Client) vitals(ctx context.Context) (engine.ServerMetrics, error) {
	if c.calls.isClosed() {
		return engine.UnknownMetrics(), c.closedFault()
	}
	text, err := c.get(ctx, c.root("metrics"))
	if err == nil {
		return parseMetrics(text), nil
	}
	if errors.Is(err, errNoRoute) {
		_, err = c.get(ctx, c.root("health"))
		if errors.Is(err, errNoRoute) {
			err = nil // it answers
		}
	}
	return engine.UnknownMetrics(), err
}

// root is a path beside the API's /v1, where servers have what is not OpenAI's.
func (c *Client) root(path string) target {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/v1") + "/" + path
	return target{&u, "GET " + u.String()}
}

// parseMetrics reads Prometheus' text format. Servers of several engines give a
// number for each: requests add up, of caches the fullest counts. What is no
// number is passed over.
func parseMetrics(text []byte) engine.ServerMetrics {
	v := engine.UnknownMetrics()
	for line := range bytes.Lines(text) {
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
			v.Start = word64(rest)
		case "vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing", "tgi_batch_current_size":
			add(&v.Running, rest)
		case "vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "tgi_queue_size":
			add(&v.Waiting, rest)
		case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio":
			if n, ok := sample(rest); ok {
				v.KVCacheUsage = max(v.KVCacheUsage, n)
			}
		case "vllm:num_preemptions_total":
			add(&v.Preempted, rest)
		}
	}
	return v
}

// value is the text of a line's number: behind the labels, which may hold
// anything, and before the time, if there is one.
func value(rest []byte) string {
	if i := bytes.LastIndexByte(rest, '}'); i >= 0 {
		rest = rest[i+1:]
	}
	for f := range bytes.FieldsSeq(rest) {
		return string(f)
	}
	return ""
}

// word64 bounds a word that is shown and compared.
func word64(rest []byte) string { return text.Truncate(value(rest), 64, "") }

func sample(rest []byte) (float64, bool) {
	n, err := strconv.ParseFloat(value(rest), 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

func add(sum *float64, rest []byte) {
	if n, ok := sample(rest); ok {
		*sum = max(*sum, 0) + n
	}
}
