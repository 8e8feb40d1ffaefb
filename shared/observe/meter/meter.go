// Package meter collects the Prometheus metrics of a process: the events of functions and
// workers, and the calls of every port.
//
// A Meter has its own registry. Its labels have few values: kinds, operations, pools, and
// a limited number of open runs. No label identifies an item. Recording an item takes a
// few additions and allocates no memory.
package meter

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

// namespace is the prefix of every metric name.
const namespace = "rollout"

// Meter has the metrics of a process. It is safe for concurrent use. A nil Meter returns
// ports unwrapped.
type Meter struct {
	registry *prometheus.Registry
	ports    ports
	work     work
	workers  workers
	online   online
	scan     scan
	servers  servers
	plugins  plugins
}

var _ observe.Meter = (*Meter)(nil)

// New returns a meter whose counters are 0.
func New() *Meter {
	m := &Meter{registry: prometheus.NewRegistry(), ports: newPorts(), work: newWork(), workers: newWorkers(),
		online: newOnline(), plugins: newPlugins()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		&m.scan,
		&m.servers,
	)
	for _, group := range [][]prometheus.Collector{m.ports.all(), m.work.all(), m.workers.all(), m.online.all(),
		m.plugins.all()} {
		m.registry.MustRegister(group...)
	}
	return m
}

// Handler returns the metrics over HTTP, to at most four requests at a time.
func (m *Meter) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second, ErrorHandling: promhttp.ContinueOnError,
	})
}

// Gatherer returns the registry, for tests and other exporters.
func (m *Meter) Gatherer() prometheus.Gatherer { return m.registry }

// code returns the value of the label code: "ok" or the kind of the error.
func code(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.KindOf(err).String()
}

// Count counts an event; see observe.Meter.
func (m *Meter) Count(e observe.Event) {
	m.work.count(e)
	m.workers.count(e)
}

// RecordRequest records a request to an engine; see observe.Meter.
func (m *Meter) RecordRequest(took time.Duration, err error) { m.work.request(took, err) }

// RecordTokens records the tokens of an item's row; see observe.Meter.
func (m *Meter) RecordTokens(prompt, completion, wasted int64) {
	m.work.row(prompt, completion, wasted)
}

// RecordPluginCall records a call of a plugin; see observe.Meter.
func (m *Meter) RecordPluginCall(plugin string, took time.Duration, err error) {
	m.plugins.record(plugin, took, err)
}

// RecordScan records a scan of an installation; see observe.Meter.
func (m *Meter) RecordScan(s observe.Scan) { m.scan.set(s) }

// TrackCommits adds a counter of the transactions of the embedded state. commits returns
// their current number.
func (m *Meter) TrackCommits(commits func() int64) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: "state_commits_total",
		Help: "Transactions that were synced to the state's database.",
	}, func() float64 { return float64(commits()) }))
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	o := prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
	return prometheus.NewHistogramVec(o, labels)
}
