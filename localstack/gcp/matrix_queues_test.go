package emulators

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"rollout/localstack/gcp/fakepubsub"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/queue"
	"rollout/shared/queue/queuetest"
)

// pullWait is how long the emulator's pulls wait. The driver's are by far longer: an answer
// that comes too late, on a busy machine, would hide its messages.
const pullWait = 20 * time.Millisecond

func TestPubSub(t *testing.T) {
	t.Parallel()
	queues(t, fakepubsub.Faults{})
}

// Half of the expired acknowledgements take effect. The suite passes all the same.
func TestPubSubStaleAcks(t *testing.T) {
	t.Parallel()
	queues(t, fakepubsub.Faults{Seed: 3, StaleAcks: 50})
}

// queues runs the suite. Each test has a server of its own, whose clock it moves.
func queues(t *testing.T, faults fakepubsub.Faults) {
	var servers sync.Map // of the open queues
	open := func(t *testing.T, s *fakepubsub.Server) queue.Queues {
		q, err := gcp.NewQueues(t.Context(), emulated(), gcp.QueueOptions{
			Prefix: "rollout-", Clock: s, ShortestPull: time.Minute, SDK: s.ClientOptions(),
		})
		if err != nil {
			t.Fatal(err)
		}
		servers.Store(q, s)
		return q
	}
	serverOf := func(q queue.Queues) *fakepubsub.Server {
		s, _ := servers.Load(q)
		return s.(*fakepubsub.Server)
	}
	queuetest.Run(t, func(t *testing.T) queue.Queues {
		return open(t, fakepubsub.Start(t, fakepubsub.Options{
			Faults: faults, Manual: true, PullWait: pullWait, Absent: fakepubsub.Queue(queue.MaxReceives),
		}))
	}, queuetest.Features{
		StaleUnnoticed: true,
		Advance:        func(q queue.Queues, d time.Duration) { serverOf(q).Advance(d) },
		Reopen:         func(t *testing.T, q queue.Queues) queue.Queues { return open(t, serverOf(q)) },
	})
}

// The environment names the emulator, as for all clients of Google Cloud.
func TestPubSubEmulatorVariable(t *testing.T) {
	s := fakepubsub.Start(t, fakepubsub.Options{Absent: fakepubsub.Queue(queue.MaxReceives)})
	t.Setenv(gcp.PubSubEmulatorVariable, s.Address)
	q, err := gcp.NewQueues(t.Context(), emulated(), gcp.QueueOptions{Prefix: "rollout-"})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Send(t.Context(), "work", [][]byte{[]byte("x")}, 0); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), "work", 1, time.Minute, time.Minute)
	if err != nil || len(got) != 1 || string(got[0].Body) != "x" {
		t.Errorf("received %v, %v", got, err)
	}
}

// A Publish has at most 1,000 messages and 10 MB, and an Acknowledge 512 KiB of ids.
func TestPubSubBatchesAreBounded(t *testing.T) {
	t.Parallel()
	s := fakepubsub.Start(t, fakepubsub.Options{Absent: fakepubsub.Queue(queue.MaxReceives), PullWait: pullWait})
	q, err := gcp.NewQueues(t.Context(), emulated(), gcp.QueueOptions{
		Prefix: "rollout-", ShortestPull: time.Minute, SDK: s.ClientOptions(),
	})
	if err != nil {
		t.Fatal(err)
	}
	small, large := bytes.Repeat([]byte("s"), 10), bytes.Repeat([]byte("l"), queue.MaxBody)
	bodies := append(slices.Repeat([][]byte{large}, 200), slices.Repeat([][]byte{small}, 2500)...)
	if err := q.Send(t.Context(), "work", bodies, 0); err != nil {
		t.Fatal(err)
	}
	var receipts []string
	for len(receipts) < len(bodies) {
		got, err := q.Receive(t.Context(), "work", queue.MaxReceive, queue.MaxVisibility, time.Minute)
		if err != nil || len(got) == 0 {
			t.Fatalf("after %d of %d messages: %d, %v", len(receipts), len(bodies), len(got), err)
		}
		for _, m := range got {
			receipts = append(receipts, m.Receipt)
		}
	}
	if err := q.Ack(t.Context(), "work", receipts); err != nil {
		t.Fatal(err)
	}
	if got, err := q.Receive(t.Context(), "work", 1, time.Minute, 0); err != nil || len(got) > 0 {
		t.Errorf("after the ack: %v, %v", got, err)
	}
}

// A receiver that cannot reach Pub/Sub says so: its queue is not empty.
func TestPubSubUnreachableIsUnavailable(t *testing.T) {
	t.Parallel()
	nobody := []option.ClientOption{option.WithEndpoint("passthrough:///127.0.0.1:1"), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))}
	q, err := gcp.NewQueues(t.Context(), emulated(), gcp.QueueOptions{Prefix: "rollout-", SDK: nobody})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Receive(t.Context(), "work", 1, time.Minute, time.Hour); !fault.Is(err, fault.Unavailable) {
		t.Errorf("receive: %v, want Unavailable", err)
	}
}
