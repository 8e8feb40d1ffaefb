package meter

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// portBuckets are the buckets of the duration of calls, in seconds: from a row of SQLite to
// a slow remote store.
var portBuckets = []float64{.0002, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// ports has the metrics of the calls of the ports. The wrappers are below the retries, so
// the metrics include failures that a retry hides.
type ports struct {
	blobs     *prometheus.CounterVec
	blobTook  *prometheus.HistogramVec
	blobBytes prometheus.Counter

	docs     *prometheus.CounterVec
	docsTook *prometheus.HistogramVec

	queues     *prometheus.CounterVec
	queuesTook *prometheus.HistogramVec
	messages   *prometheus.CounterVec
}

func newPorts() ports {
	return ports{
		blobs: counters("blob_requests_total", "Calls of the object store, by result.", "operation", "code"),
		blobTook: histograms("blob_request_duration_seconds",
			"Duration of calls of the object store; for a get, until the first byte can be read.",
			portBuckets, "operation"),
		blobBytes: counter("blob_written_bytes_total", "Bytes of written objects."),
		docs: counters("document_requests_total",
			"Document store calls, by result. A conflict is a lost claim or commit race.",
			"operation", "document", "code"),
		docsTook: histograms("document_request_duration_seconds", "Duration of calls of the document store.",
			portBuckets, "operation"),
		queues: counters("queue_requests_total", "Calls of the queues, by result.", "operation", "queue", "code"),
		queuesTook: histograms("queue_request_duration_seconds",
			"Duration of calls of the queues, except receives, which wait.", portBuckets, "operation"),
		messages: counters("queue_moved_messages_total", "Messages sent and received.", "queue", "direction"),
	}
}

func (p *ports) all() []prometheus.Collector {
	return []prometheus.Collector{
		p.blobs, p.blobTook, p.blobBytes, p.docs, p.docsTook, p.queues, p.queuesTook, p.messages,
	}
}

// documents are the first parts of keys that are values of the label document. All others
// are "other".
var documents = map[string]bool{
	"run": true, "open": true, "control": true, "coordinator": true,
	"shard": true, "beat": true, "worker": true, "plan": true, "limit": true,
}

// kindOf returns the value of the label document for a key.
func kindOf(key string) string {
	first, _, _ := strings.Cut(key, "/")
	if documents[first] {
		return first
	}
	return "other"
}

func since(start time.Time) float64 { return time.Since(start).Seconds() }
