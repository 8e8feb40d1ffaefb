package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/fault"
)

// metrics are told in vLLM's names, so that what watches vLLM watches this.
type metrics struct {
	registry *prometheus.Registry
	success  *prometheus.CounterVec

	whole, first, queued, between prometheus.Observer
}

// newMetrics registers everything. The start of the process is what clients
// tell one start of a server from another by.
func newMetrics(e *tiny.Engine, start time.Time) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	labels := prometheus.Labels{"engine": "0", "model_name": e.Name()}
	r := prometheus.WrapRegistererWith(labels, m.registry)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_start_time_seconds",
		Help: "Start time of the process since unix epoch in seconds."}, func() float64 { return float64(start.UnixMicro()) / 1e6 }))
	for _, g := range []struct {
		name, help string
		value      func(scheduler.Stats) float64
	}{
		{"vllm:num_requests_running", "Requests in the model's batch.", func(s scheduler.Stats) float64 { return float64(s.Running) }},
		{"vllm:num_requests_waiting", "Requests that wait for a place in the batch.", func(s scheduler.Stats) float64 { return float64(s.Waiting) }},
		{"vllm:kv_cache_usage_perc", "Share of the cache of keys and values in use; 1 is all of it.", func(s scheduler.Stats) float64 { return s.Cache }},
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 { return g.value(e.Stats()) }))
	}
	for _, c := range []struct {
		name, help string
		value      func(scheduler.Stats) float64
	}{
		{"vllm:num_preemptions_total", "Requests that lost their place again: there are none.", func(scheduler.Stats) float64 { return 0 }},
		{"vllm:prompt_tokens_total", "Tokens of prompts that were read.", func(s scheduler.Stats) float64 { return float64(s.PromptTokens) }},
		{"vllm:generation_tokens_total", "Tokens that were made.", func(s scheduler.Stats) float64 { return float64(s.NewTokens) }},
	} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, func() float64 { return c.value(e.Stats()) }))
	}
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total", Help: "Answers by how they ended."}, []string{"finished_reason"})
	r.MustRegister(m.success)
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		m.success.WithLabelValues(reason)
	}
	for _, h := range []struct {
		to         *prometheus.Observer
		name, help string
		least      float64
	}{
		{&m.whole, "vllm:e2e_request_latency_seconds", "Time from a request to the end of its answer.", 0.01},
		{&m.first, "vllm:time_to_first_token_seconds", "Time from a request to its answer's first token.", 0.001},
		{&m.queued, "vllm:request_queue_time_seconds", "Time that a request waited for a place in the batch.", 0.001},
		{&m.between, "vllm:request_time_per_output_token_seconds", "Mean time between two tokens of an answer.", 0.0001},
	} {
		histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: h.name, Help: h.help, Buckets: prometheus.ExponentialBuckets(h.least, 2.5, 12)})
		r.MustRegister(histogram)
		*h.to = histogram
	}
	return m
}

// count counts what came of a question.
func (m *metrics) count(out tiny.GenerationResult, err error) {
	switch {
	case fault.Is(err, fault.Canceled):
		m.success.WithLabelValues("abort").Inc()
		return
	case err != nil:
		m.success.WithLabelValues("error").Inc()
		return
	}
	m.success.WithLabelValues(out.Finish).Inc()
	t := out.Times
	m.whole.Observe(t.Ended.Sub(t.Queued).Seconds())
	m.queued.Observe(t.Started.Sub(t.Queued).Seconds())
	if n := out.Usage.CompletionTokens; n > 0 {
		m.first.Observe(t.First.Sub(t.Queued).Seconds())
		if n > 1 {
			m.between.Observe(t.Last.Sub(t.First).Seconds() / float64(n-1))
		}
	}
}
