package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

// requestBuckets are the buckets of the duration of requests, in seconds: from a cached
// classification to a long chain of thought.
var requestBuckets = []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// answered is the class of an item that has an output row.
const answered = "answered"

// work has the counters of runs, shards, items and requests of this process.
type work struct {
	runs       *prometheus.CounterVec
	shards     *prometheus.CounterVec
	items      *prometheus.CounterVec
	tokens     *prometheus.CounterVec
	checkpoint prometheus.Counter
	result     prometheus.Counter
	requests   *prometheus.CounterVec
	took       prometheus.Histogram

	// Counters of every item are looked up once.
	prompt, completion, wasted prometheus.Counter
	byResult                   [fault.Canceled + 2]prometheus.Counter // of requests: "ok", then by kind
}

func newWork() work {
	w := work{
		runs: counters("run_transitions_total",
			"Runs submitted, refused, planned, and ended, by their last phase.", "transition", "phase"),
		shards: counters("shard_transitions_total",
			"Shards claimed, checkpointed, committed, sealed, released and lost.", "transition"),
		items: counters("items_total",
			"Items of shards that this process committed, by class: answered, or the class of the failure.", "class"),
		tokens: counters("tokens_total",
			"Tokens of the rows that this process made; wasted ones did not lead to a row.", "kind"),
		checkpoint: counter("checkpoint_bytes_total", "Bytes of checkpoints written."),
		result:     counter("result_bytes_total", "Bytes of committed results written."),
		requests: counters("requests_total",
			"Requests to the engine, by result: ok or the kind of fault.", "code"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "request_duration_seconds",
			Help: "Duration of answered requests to the engine.", Buckets: requestBuckets,
		}),
	}
	w.prompt, w.completion = w.tokens.WithLabelValues("prompt"), w.tokens.WithLabelValues("completion")
	w.wasted = w.tokens.WithLabelValues("wasted")
	w.byResult[0] = w.requests.WithLabelValues("ok")
	for k := range fault.Canceled + 1 {
		w.byResult[k+1] = w.requests.WithLabelValues(k.String())
	}
	w.items.WithLabelValues(answered)
	for _, c := range fault.Classes {
		w.items.WithLabelValues(string(c))
	}
	for _, t := range []string{"claimed", "checkpointed", "committed", "sealed", "released", "lost"} {
		w.shards.WithLabelValues(t)
	}
	return w
}

func (w *work) all() []prometheus.Collector {
	return []prometheus.Collector{w.runs, w.shards, w.items, w.tokens, w.checkpoint, w.result, w.requests, w.took}
}

func (w *work) count(e observe.Event) {
	switch e := e.(type) {
	case observe.RunSubmitted:
		w.runs.WithLabelValues("submitted", "").Inc()
	case observe.RunRefused:
		w.runs.WithLabelValues("refused", "").Inc()
	case observe.RunPlanned:
		w.runs.WithLabelValues("planned", "").Inc()
	case observe.RunEnded:
		w.runs.WithLabelValues("ended", e.Phase).Inc()
	case observe.ShardClaimed:
		w.shards.WithLabelValues("claimed").Inc()
	case observe.ShardCheckpoint:
		w.shards.WithLabelValues("checkpointed").Inc()
		w.checkpoint.Add(float64(e.Bytes))
	case observe.ShardDone:
		w.done(e)
	case observe.ShardReleased:
		w.shards.WithLabelValues("released").Inc()
	case observe.ShardLost:
		w.shards.WithLabelValues("lost").Inc()
	}
}

func (w *work) done(e observe.ShardDone) {
	transition := "committed"
	if e.Sealed != "" {
		transition = "sealed"
	}
	w.shards.WithLabelValues(transition).Inc()
	w.result.Add(float64(e.Bytes))
	w.items.WithLabelValues(answered).Add(float64(e.Counts.OK))
	for class, n := range e.Counts.ByClass {
		w.items.WithLabelValues(class).Add(float64(n))
	}
}

func (w *work) request(took time.Duration, err error) {
	if err == nil {
		w.byResult[0].Inc()
		w.took.Observe(took.Seconds())
		return
	}
	w.byResult[min(fault.KindOf(err), fault.Canceled)+1].Inc()
}

func (w *work) row(prompt, completion, wasted int64) {
	w.prompt.Add(float64(prompt))
	w.completion.Add(float64(completion))
	if wasted > 0 {
		w.wasted.Add(float64(wasted))
	}
}
