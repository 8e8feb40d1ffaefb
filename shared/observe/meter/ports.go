package meter

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// portBuckets are the bounds of how long a call takes, in seconds: from a row
// of SQLite to a slow store far away.
var portBuckets = []float64{.0002, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// ports count the calls through the ports. Drivers are wrapped, not what
// retries over them: what a retry hides is seen.
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
		blobs:      counters("blob_requests_total", "Calls of the bucket, by how they ended.", "operation", "code"),
		blobTook:   histograms("blob_request_duration_seconds", "How long calls of the bucket took; of a get, until the first byte can be read.", portBuckets, "operation"),
		blobBytes:  counter("blob_written_bytes_total", "Bytes of objects put."),
		docs:       counters("document_requests_total", "Calls of the document store, by how they ended. A conflict is a lost race: of a claim, a commit, a coordinator's step.", "operation", "document", "code"),
		docsTook:   histograms("document_request_duration_seconds", "How long calls of the document store took.", portBuckets, "operation"),
		queues:     counters("queue_requests_total", "Calls of the queues, by how they ended.", "operation", "queue", "code"),
		queuesTook: histograms("queue_request_duration_seconds", "How long calls of the queues took; receives, which wait, are left out.", portBuckets, "operation"),
		messages:   counters("queue_moved_messages_total", "Messages sent and received.", "queue", "direction"),
	}
}

func (p *ports) all() []prometheus.Collector {
	return []prometheus.Collector{p.blobs, p.blobTook, p.blobBytes, p.docs, p.docsTook, p.queues, p.queuesTook, p.messages}
}

// documents are the first parts of documents' keys; the rest are "other".
var documents = map[string]bool{"run": true, "open": true, "control": true, "coordinator": true, "shard": true, "beat": true, "worker": true, "plan": true}

// kindOf is what sort of document a key names.
func kindOf(key string) string {
	first, _, _ := strings.Cut(key, "/")
	if documents[first] {
		return first
	}
	return "other"
}

func since(start time.Time) float64 { return time.Since(start).Seconds() }
