package meter

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// online has the counters of online requests: those of clients that wait for the answer. The
// process that listens for them counts them; they are in no other counter.
type online struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	waiting  *prometheus.GaugeVec
	took     *prometheus.HistogramVec
}

// cutOff is the code of requests whose client left, or whose answer broke off.
const cutOff = "cut_off"

func newOnline() online {
	return online{
		requests: counters("online_requests_total",
			"Online requests that are over, by the status of the answer, or cut_off.", "pool", "code"),
		inFlight: gauges("online_requests_in_flight", "Online requests that are not over.", "pool"),
		waiting:  gauges("online_requests_waiting", "Online requests of whose answer no byte has come.", "pool"),
		took: histograms("online_first_byte_seconds",
			"Time from an online request to the first byte of its answer.", requestBuckets, "pool"),
	}
}

func (o online) all() []prometheus.Collector {
	return []prometheus.Collector{o.requests, o.inFlight, o.waiting, o.took}
}

// OnlineBegan counts an online request that has come.
func (m *Meter) OnlineBegan(pool string) {
	m.online.inFlight.WithLabelValues(pool).Inc()
	m.online.waiting.WithLabelValues(pool).Inc()
}

// OnlineAnswered records that the first byte of its answer came after that time.
func (m *Meter) OnlineAnswered(pool string, after time.Duration) {
	m.online.waiting.WithLabelValues(pool).Dec()
	m.online.took.WithLabelValues(pool).Observe(after.Seconds())
}

// OnlineEnded counts an online request that is over: with that status, or cut off.
// OnlineAnswered was called before if began is true.
func (m *Meter) OnlineEnded(pool string, status int, began, whole bool) {
	code := cutOff
	if whole {
		code = strconv.Itoa(status)
	}
	if !began {
		m.online.waiting.WithLabelValues(pool).Dec()
	}
	m.online.inFlight.WithLabelValues(pool).Dec()
	m.online.requests.WithLabelValues(pool, code).Inc()
}
