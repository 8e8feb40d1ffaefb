package meter

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"rollout/shared/observe"
)

// servers has the gauges of the inference servers of this process's workers.
type servers struct {
	mu      sync.Mutex
	sources []func() []observe.Server
}

var (
	serverUp = describe("server_up",
		"1 if an inference server gets requests, 0 while it does not answer.", "server")
	serverInFlight = describe("server_requests_in_flight",
		"Requests of this process that an inference server processes.", "server")
	serverLimit = describe("server_requests_limit",
		"The measured best number of concurrent requests to an inference server; absent if the config sets it.", "server")
)

// AddServerSource adds a source of the status of servers; see observe.Meter.
func (m *Meter) AddServerSource(status func() []observe.Server) {
	m.servers.mu.Lock()
	defer m.servers.mu.Unlock()
	m.servers.sources = append(m.servers.sources, status)
}

// Describe implements prometheus.Collector.
func (s *servers) Describe(out chan<- *prometheus.Desc) {
	out <- serverUp
	out <- serverInFlight
	out <- serverLimit
}

// Collect implements prometheus.Collector. It sums up the servers by name, because several
// pools may use one server.
func (s *servers) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	sources := s.sources
	s.mu.Unlock()
	sum := map[string]observe.Server{}
	var names []string
	for _, status := range sources {
		for _, one := range status() {
			all, known := sum[one.Name]
			if !known {
				names = append(names, one.Name)
				all = observe.Server{Name: one.Name, Up: true}
			}
			sum[one.Name] = observe.Server{
				Name:     one.Name,
				Up:       all.Up && one.Up,
				InFlight: all.InFlight + one.InFlight,
				Limit:    all.Limit + one.Limit,
			}
		}
	}
	gauge := func(d *prometheus.Desc, v float64, name string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
	}
	for _, name := range names {
		one := sum[name]
		up := 0.0
		if one.Up {
			up = 1
		}
		gauge(serverUp, up, name)
		gauge(serverInFlight, float64(one.InFlight), name)
		if one.Limit > 0 {
			gauge(serverLimit, float64(one.Limit), name)
		}
	}
}
