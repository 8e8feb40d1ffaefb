package queue_test

import (
	"context"
	"fmt"
	"time"

	"rollout/shared/clock"
	"rollout/shared/memory"
	"rollout/shared/queue"
)

// A message stays hidden while its receiver works. The receiver returns one message
// for others, and acknowledges it at the second delivery.
func Example() {
	ctx := context.Background()
	var queues queue.Queues = memory.NewQueues(clock.System{}) // or SQS, Pub/Sub, SQLite

	if err := queues.Send(ctx, "work-small", [][]byte{[]byte("shard 7")}, 0); err != nil {
		fmt.Println(err)
		return
	}
	receive := func() []queue.Message {
		messages, err := queues.Receive(ctx, "work-small", 10, time.Minute, 0)
		if err != nil {
			fmt.Println(err)
		}
		return messages
	}
	first := receive()
	fmt.Printf("%s, delivery %d\n", first[0].Body, first[0].Receives)
	fmt.Println("visible to others:", len(receive()))

	_ = queues.Nack(ctx, "work-small", first[0].Receipt, 0) // give it back at once
	again := receive()
	fmt.Printf("%s, delivery %d\n", again[0].Body, again[0].Receives)
	_ = queues.Ack(ctx, "work-small", []string{again[0].Receipt})
	// Output:
	// shard 7, delivery 1
	// visible to others: 0
	// shard 7, delivery 2
}
