package fakellm

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// counters are the server's counters and gauges. They start at zero with the
// process, as those of a real server.
type counters struct {
	requests, running, waiting, peak atomic.Int64

	promptTokens, generationTokens atomic.Int64
	preempted                      atomic.Int64
	stopped, cut, aborted          atomic.Int64 // answers, by how they ended
	limited, mostInMinute          atomic.Int64 // with Faults.MinuteLimit or MinuteTokens
}

// metrics serves the metrics in Prometheus' text format, with vLLM's names and
// shapes where vLLM has them: floats, a label for the engine, and the start time
// of the process, by which clients detect a restart.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	out := family(nil, "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	out = fmt.Appendf(out, "process_start_time_seconds %s\n", seconds(s.start))
	labels := fmt.Sprintf(`engine="0",model_name=%s`, quoted(s.cfg.Model))
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(s.running.Load())},
		{"vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(s.waiting.Load())},
		{"vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", s.cacheUsage()},
		{"vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.",
			float64(s.preempted.Load())},
		{"vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(s.promptTokens.Load())},
		{"vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
			float64(s.generationTokens.Load())},
	} {
		out = family(out, m.name, m.kind, m.help)
		out = fmt.Appendf(out, "%s{%s} %s\n", m.name, labels, float(m.value))
	}
	out = family(out, "vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for _, m := range []struct {
		reason string
		count  *atomic.Int64
	}{{"stop", &s.stopped}, {"length", &s.cut}, {"abort", &s.aborted}} {
		out = fmt.Appendf(out, "vllm:request_success_total{%s,finished_reason=%q} %s\n", labels, m.reason,
			float(float64(m.count.Load())))
	}
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"fakellm_requests_total", "counter", "Completions that were asked for.", s.requests.Load()},
		{"fakellm_limited_total", "counter", "Requests that were refused because of --minute-limit or --minute-tokens.",
			s.limited.Load()},
		{"fakellm_max_minute", "gauge", "Requests within a minute, at most, with --minute-limit.", s.mostInMinute.Load()},
		{"fakellm_max_running", "gauge", "Requests that ran at once, at most.", s.peak.Load()},
	} {
		out = family(out, m.name, m.kind, m.help)
		out = fmt.Appendf(out, "%s{model_name=%s} %d\n", m.name, quoted(s.cfg.Model), m.value)
	}
	_, _ = w.Write(out) // the client may have left
}

// family appends the header of a metric.
func family(out []byte, name, kind, help string) []byte {
	return fmt.Appendf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// float formats a number as Python's Prometheus client does: "2.0", "0.25".
func float(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if v == float64(int64(v)) {
		s += ".0"
	}
	return s
}

// seconds formats the time since 1970, to the microsecond, so that two starts of
// a process differ.
func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMicro())/1e6, 'f', -1, 64)
}
