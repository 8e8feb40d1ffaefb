package shard_test

import (
	"fmt"
	"time"

	"rollout/shared/core/shard"
)

// A worker dies with a shard. Another one claims it, and the first one's late
// commit is fenced by its attempt.
func Example() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	doc := shard.New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7) // stands for the absent document

	doc, _ = doc.Claim("worker-a", now, shard.HolderAlive)
	first := shard.Holder{Worker: doc.Worker, Attempt: doc.Attempt}
	fmt.Println(doc.State, doc.Worker, doc.Attempt)

	_, err := doc.Claim("worker-b", now, shard.HolderAlive)
	fmt.Println(err)

	doc, _ = doc.Claim("worker-b", now.Add(time.Minute), shard.HolderVanished)
	fmt.Println(doc.State, doc.Worker, doc.Attempt)

	result := shard.Ref{Key: "work/x", Length: 100, Digest: "…"}
	_, err = doc.Commit(first, result, 100, shard.Counts{OK: 256})
	fmt.Println(err)

	second := shard.Holder{Worker: doc.Worker, Attempt: doc.Attempt}
	doc, _ = doc.Commit(second, result, 100, shard.Counts{OK: 256})
	fmt.Println(doc.State)
	// Output:
	// running worker-a 1
	// shard 7 is held by worker-a
	// running worker-b 2
	// commit of shard 7 by worker-a, attempt 1: it is running, held by "worker-b", attempt 2
	// done
}
