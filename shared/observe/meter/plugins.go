package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// plugins has the calls of a worker's plugins, which are few and named by the deployment.
type plugins struct {
	calls *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newPlugins() plugins {
	return plugins{
		calls: counters("plugin_calls_total", "Calls of plugins, by result: ok or the kind of fault.", "plugin", "code"),
		took: histograms("plugin_call_duration_seconds", "Duration of the calls of plugins.", requestBuckets,
			"plugin"),
	}
}

func (p *plugins) all() []prometheus.Collector { return []prometheus.Collector{p.calls, p.took} }

func (p *plugins) record(plugin string, took time.Duration, err error) {
	p.calls.WithLabelValues(plugin, code(err)).Inc()
	p.took.WithLabelValues(plugin).Observe(took.Seconds())
}
