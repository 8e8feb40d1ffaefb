package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/fault"
)

// metrics have the names of vLLM's metrics, so that vLLM's dashboards and alerts work
// with this server.
type metrics struct {
	registry *prometheus.Registry
	success  *prometheus.CounterVec

	latency, firstToken, queueTime, tokenTime prometheus.Observer
}

// newMetrics registers all metrics. start is the start time of the process; clients
// use it to detect restarts.
func newMetrics(e *tiny.Engine, start time.Time) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	labels := prometheus.Labels{"engine": "0", "model_name": e.Name()}
	r := prometheus.WrapRegistererWith(labels, m.registry)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "Start time of the process since unix epoch in seconds.",
	}, func() float64 { return float64(start.UnixMicro()) / 1e6 }))
	registerStats(r, e)
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vllm:request_success_total", Help: "Answers by the reason for their end.",
	}, []string{"finished_reason"})
	r.MustRegister(m.success)
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		m.success.WithLabelValues(reason)
	}
	for _, h := range []struct {
		to         *prometheus.Observer
		name, help string
		least      float64 // upper bound of the first bucket
	}{
		{&m.latency, "vllm:e2e_request_latency_seconds", "Time from a request to the end of its answer.", 0.01},
		{&m.firstToken, "vllm:time_to_first_token_seconds", "Time from a request to its answer's first token.", 0.001},
		{&m.queueTime, "vllm:request_queue_time_seconds", "Time that a request waited for a slot in the batch.", 0.001},
		{&m.tokenTime, "vllm:request_time_per_output_token_seconds", "Mean time between two tokens of an answer.", 0.0001},
	} {
		histogram := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: h.name, Help: h.help, Buckets: prometheus.ExponentialBuckets(h.least, 2.5, 12),
		})
		r.MustRegister(histogram)
		*h.to = histogram
	}
	return m
}

// registerStats registers the metrics that are read from the scheduler's statistics.
func registerStats(r prometheus.Registerer, e *tiny.Engine) {
	type stat struct {
		name, help string
		value      func(scheduler.Stats) float64
	}
	for _, g := range []stat{
		{"vllm:num_requests_running", "Requests in the model's batch.",
			func(s scheduler.Stats) float64 { return float64(s.Running) }},
		{"vllm:num_requests_waiting", "Requests that wait for a slot in the batch.",
			func(s scheduler.Stats) float64 { return float64(s.Waiting) }},
		{"vllm:kv_cache_usage_perc", "Share of the cache of keys and values in use, from 0 to 1.",
			func(s scheduler.Stats) float64 { return s.Cache }},
	} {
		opts := prometheus.GaugeOpts{Name: g.name, Help: g.help}
		r.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return g.value(e.Stats()) }))
	}
	for _, c := range []stat{
		{"vllm:num_preemptions_total", "Preempted requests; always 0, because this engine never preempts.",
			func(scheduler.Stats) float64 { return 0 }},
		{"vllm:prompt_tokens_total", "Prompt tokens processed.",
			func(s scheduler.Stats) float64 { return float64(s.PromptTokens) }},
		{"vllm:generation_tokens_total", "Tokens generated.",
			func(s scheduler.Stats) float64 { return float64(s.NewTokens) }},
	} {
		opts := prometheus.CounterOpts{Name: c.name, Help: c.help}
		r.MustRegister(prometheus.NewCounterFunc(opts, func() float64 { return c.value(e.Stats()) }))
	}
}

// record records the result of a generation.
func (m *metrics) record(out tiny.GenerationResult, err error) {
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
	m.latency.Observe(t.Ended.Sub(t.Queued).Seconds())
	m.queueTime.Observe(t.Started.Sub(t.Queued).Seconds())
	if n := out.Usage.CompletionTokens; n > 0 {
		m.firstToken.Observe(t.First.Sub(t.Queued).Seconds())
		if n > 1 {
			m.tokenTime.Observe(t.Last.Sub(t.First).Seconds() / float64(n-1))
		}
	}
}
