package meter

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"rollout/shared/observe"
)

// servers tells how the inference servers of this process's workers stand.
type servers struct {
	mu   sync.Mutex
	asks []func() []observe.Server
}

var (
	serverUp       = describe("server_up", "Whether an inference server gets requests: 0 while it does not answer.", "server")
	serverInFlight = describe("server_requests_in_flight", "Requests of this process that an inference server works on.", "server")
	serverLimit    = describe("server_requests_limit", "Requests that an inference server gets at once, as it makes the most of; absent where the config says how many.", "server")
)

// AddServerSource lets the meter tell how servers stand, as ask says when it is asked.
func (m *Meter) AddServerSource(ask func() []observe.Server) {
	m.servers.mu.Lock()
	defer m.servers.mu.Unlock()
	m.servers.asks = append(m.servers.asks, ask)
}

// Describe implements prometheus.Collector.
func (s *servers) Describe(out chan<- *prometheus.Desc) {
	out <- serverUp
	out <- serverInFlight
	out <- serverLimit
}

// Collect implements prometheus.Collector. Several pools may use one server.
func (s *servers) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	asks := s.asks
	s.mu.Unlock()
	sum := map[string]observe.Server{}
	var names []string
	for _, ask := range asks {
		for _, one := range ask() {
			all, known := sum[one.Name]
			if !known {
				names = append(names, one.Name)
				all = observe.Server{Name: one.Name, Up: true}
			}
			sum[one.Name] = observe.Server{Name: one.Name, Up: all.Up && one.Up, InFlight: all.InFlight + one.InFlight, Limit: all.Limit + one.Limit}
		}
	}
	tell := func(d *prometheus.Desc, v float64, name string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
	}
	for _, name := range names {
		one := sum[name]
		up := 0.0
		if one.Up {
			up = 1
		}
		tell(serverUp, up, name)
		tell(serverInFlight, float64(one.InFlight), name)
		if one.Limit > 0 {
			tell(serverLimit, float64(one.Limit), name)
		}
	}
}
