package events_test

import (
	"errors"
	"fmt"
	"time"

	"rollout/events"
)

// A worker reports a finished shard, and coordinate reads the report.
func Example() {
	done := events.ShardDone{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Shard: 7, Attempt: 1, Worker: "w1",
		Counts: events.Counts{OK: 255, Failed: 1, ByClass: map[string]int{"too_long": 1}}}
	message, err := events.Encode(done, events.Meta{
		Source: "rollout/worker/w1",
		Time:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	})
	if err != nil {
		fmt.Println(err) // the payload is invalid
	}

	envelope, payload, err := events.Decode(message)
	switch p := payload.(type) {
	case events.ShardDone:
		fmt.Println(envelope.Source, "finished shard", p.Shard, "with", p.Counts.OK, "answers")
	case events.Unknown:
		fmt.Println("sent by a later version:", err)
	}

	_, _, err = events.Decode([]byte("{}"))
	fmt.Println("dead letter:", errors.Is(err, events.ErrMalformed))
	// Output:
	// rollout/worker/w1 finished shard 7 with 255 answers
	// dead letter: true
}
