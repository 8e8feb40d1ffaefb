// Package meter counts for Prometheus what happens in a process: what the
// functions and workers tell, and every call through a port.
//
// A Meter has a registry of its own. Its labels have few values: kinds,
// operations, pools, and the runs that are open, of which only so many are
// told one by one. It never names an item, and costs a sample a few additions.
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

// namespace begins every name.
const namespace = "rollout"

// Meter is a process's. A nil Meter wraps no port.
type Meter struct {
	registry *prometheus.Registry
	ports    ports
	work     work
	workers  workers
	scan     scan
	servers  servers
}

var _ observe.Meter = (*Meter)(nil)

// New returns a meter that has counted nothing.
func New() *Meter {
	m := &Meter{registry: prometheus.NewRegistry(), ports: newPorts(), work: newWork(), workers: newWorkers(), scan: newScan()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	for _, group := range [][]prometheus.Collector{m.ports.all(), m.work.all(), m.workers.all(), {&m.scan, &m.servers}} {
		m.registry.MustRegister(group...)
	}
	return m
}

// Handler answers with what was counted, at most a few at a time.
func (m *Meter) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second, ErrorHandling: promhttp.ContinueOnError})
}

// Gatherer gives what was counted, for tests and other ways out.
func (m *Meter) Gatherer() prometheus.Gatherer { return m.registry }

// Code is the value of the label code: "ok" or the kind of fault.
func code(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.KindOf(err).String()
}

// Count takes in an event.
func (m *Meter) Count(e observe.Event) {
	m.work.count(e)
	m.workers.count(e)
}

// RecordRequest takes in a request to an engine.
func (m *Meter) RecordRequest(took time.Duration, err error) { m.work.asked(took, err) }

// RecordTokens takes in the tokens of an item's row.
func (m *Meter) RecordTokens(prompt, completion, wasted int64) {
	m.work.row(prompt, completion, wasted)
}

// RecordScan takes in a look at an installation.
func (m *Meter) RecordScan(s observe.Scan) { m.scan.set(s) }

// TrackCommits counts the synced transactions of a laptop's state, as told by the
// function.
func (m *Meter) TrackCommits(told func() int64) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: "state_commits_total",
		Help: "Transactions that were synced to the state's database."}, func() float64 { return float64(told()) }))
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
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}
