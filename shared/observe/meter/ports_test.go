package meter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/clock"
	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/memory"
	"rollout/shared/observe/meter"
	"rollout/shared/queue"
	"rollout/shared/queue/queuetest"
)

func TestMeteredPortsConform(t *testing.T) {
	t.Parallel()
	t.Run("blobs", func(t *testing.T) {
		t.Parallel()
		blobtest.Run(t, func(*testing.T) blob.Store {
			return meter.New().Blobs(memory.NewBucket(clock.System{}))
		}, blobtest.Features{InMemory: true})
	})
	t.Run("documents", func(t *testing.T) {
		t.Parallel()
		documenttest.Run(t, func(*testing.T) document.Store {
			return meter.New().Documents(memory.NewDocuments())
		}, documenttest.Features{Watch: true})
	})
	t.Run("queues", func(t *testing.T) {
		t.Parallel()
		queuetest.Run(t, func(*testing.T) queue.Queues {
			return meter.New().Queues(memory.NewQueues(clock.System{}))
		}, queuetest.Features{Depth: true, Synctest: true})
	})
}

func TestNilMeterReturnsPortsUnwrapped(t *testing.T) {
	t.Parallel()
	var m *meter.Meter
	b, d, q := memory.NewBucket(clock.System{}), memory.NewDocuments(), memory.NewQueues(clock.System{})
	if m.Blobs(b) != blob.Store(b) || m.Documents(d) != document.Store(d) || m.Queues(q) != queue.Queues(q) {
		t.Error("a nil meter wraps the ports")
	}
}

func TestCallsAreCountedByResult(t *testing.T) {
	t.Parallel()
	m := meter.New()
	d, b := m.Documents(memory.NewDocuments()), m.Blobs(memory.NewBucket(clock.System{}))
	q := m.Queues(memory.NewQueues(clock.System{}))
	for range 2 {
		_, _ = d.Create(t.Context(), "shard/x", []byte("{}")) // the second is a conflict
		_, _ = b.Put(t.Context(), "work/x", strings.NewReader("abc"), blob.PutOptions{CreateOnly: true})
	}
	_, _ = d.Get(t.Context(), "strange/x")
	if err := q.Send(t.Context(), "tasks", [][]byte{[]byte("a"), []byte("b")}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Receive(t.Context(), "tasks", 10, time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP rollout_blob_requests_total Calls of the object store, by result.
# TYPE rollout_blob_requests_total counter
rollout_blob_requests_total{code="conflict",operation="put"} 1
rollout_blob_requests_total{code="ok",operation="put"} 1
# HELP rollout_blob_written_bytes_total Bytes of written objects.
# TYPE rollout_blob_written_bytes_total counter
rollout_blob_written_bytes_total 3
# HELP rollout_document_requests_total Document store calls, by result. A conflict is a lost claim or commit race.
# TYPE rollout_document_requests_total counter
rollout_document_requests_total{code="conflict",document="shard",operation="create"} 1
rollout_document_requests_total{code="not_found",document="other",operation="get"} 1
rollout_document_requests_total{code="ok",document="shard",operation="create"} 1
# HELP rollout_queue_moved_messages_total Messages sent and received.
# TYPE rollout_queue_moved_messages_total counter
rollout_queue_moved_messages_total{direction="received",queue="tasks"} 2
rollout_queue_moved_messages_total{direction="sent",queue="tasks"} 2
`
	err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want), "rollout_blob_requests_total",
		"rollout_blob_written_bytes_total", "rollout_document_requests_total", "rollout_queue_moved_messages_total")
	if err != nil {
		t.Error(err)
	}
}
