package meter

import (
	"github.com/prometheus/client_golang/prometheus"

	"rollout/shared/observe"
)

// lateBuckets are the buckets of the lateness of heartbeats, in seconds. The budget for
// lateness is 0.3 s.
var lateBuckets = []float64{.01, .03, .1, .3, 1, 3, 10, 30}

// workers has the metrics of the workers of this process, by pool: a process has at most
// one worker of each pool.
type workers struct {
	transitions *prometheus.CounterVec
	engines     *prometheus.CounterVec
	beat        *prometheus.GaugeVec
	late        prometheus.Histogram
	busy, limit *prometheus.GaugeVec
	shards      *prometheus.GaugeVec
	ready       *prometheus.GaugeVec
}

func newWorkers() workers {
	w := workers{
		transitions: counters("worker_transitions_total",
			"Workers registered, draining, deregistered, fenced, and found dead.", "transition"),
		engines: counters("engine_transitions_total",
			"Engines that started to answer, for the first time or again, and servers that died.", "transition"),
		beat: gauges("heartbeat_timestamp_seconds", "Time of the worker's last heartbeat.", "pool"),
		late: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "heartbeat_late_seconds",
			Help: "How late heartbeats were written.", Buckets: lateBuckets,
		}),
		busy:   gauges("requests_in_flight", "Requests to the engine at the last heartbeat.", "pool"),
		limit:  gauges("requests_in_flight_limit", "The most concurrent requests to the engine.", "pool"),
		shards: gauges("shards_held", "Shards that the worker held at the last heartbeat.", "pool"),
		ready:  gauges("engine_ready", "1 if the worker's engine answers, else 0.", "pool"),
	}
	for _, t := range []string{"registered", "draining", "deregistered", "fenced", "failed"} {
		w.transitions.WithLabelValues(t)
	}
	for _, t := range []string{"started", "died"} {
		w.engines.WithLabelValues(t)
	}
	return w
}

func (w *workers) all() []prometheus.Collector {
	return []prometheus.Collector{w.transitions, w.engines, w.beat, w.late, w.busy, w.limit, w.shards, w.ready}
}

func (w *workers) count(e observe.Event) {
	switch e := e.(type) {
	case observe.WorkerRegistered:
		w.transitions.WithLabelValues("registered").Inc()
	case observe.WorkerHeartbeat:
		w.heartbeat(e)
	case observe.WorkerDraining:
		w.transitions.WithLabelValues("draining").Inc()
	case observe.WorkerDeregistered:
		w.transitions.WithLabelValues("deregistered").Inc()
	case observe.WorkerFenced:
		w.transitions.WithLabelValues("fenced").Inc()
	case observe.WorkerFailed:
		w.transitions.WithLabelValues("failed").Inc()
	case observe.EngineStarted:
		w.engines.WithLabelValues("started").Inc()
	case observe.EngineDied:
		w.engines.WithLabelValues("died").Inc()
	}
}

func (w *workers) heartbeat(e observe.WorkerHeartbeat) {
	w.beat.WithLabelValues(e.Pool).SetToCurrentTime()
	w.late.Observe(e.Late.Seconds())
	w.busy.WithLabelValues(e.Pool).Set(float64(e.Busy))
	w.limit.WithLabelValues(e.Pool).Set(float64(e.MaxInFlight))
	w.shards.WithLabelValues(e.Pool).Set(float64(e.Shards))
	ready := 1.0
	if e.EngineAway || e.State == "init" {
		ready = 0
	}
	w.ready.WithLabelValues(e.Pool).Set(ready)
}
