package blob_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/memory"
)

// Two workers finish the same shard. Both write create-only, so that the first
// result stands and the second worker learns of it.
func Example() {
	ctx := context.Background()
	var bucket blob.Store = memory.NewBucket(clock.System{}) // or S3, Cloud Storage, a folder

	for _, worker := range []string{"w1", "w2"} {
		result := strings.NewReader("answers of " + worker + "\n")
		_, err := bucket.Put(ctx, "work/run/0", result, blob.PutOptions{CreateOnly: true})
		fmt.Println(worker, "lost the race:", fault.Is(err, fault.Conflict))
	}

	r, info, err := bucket.Get(ctx, "work/run/0", blob.GetOptions{Offset: 11})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	part, _ := io.ReadAll(r)
	fmt.Printf("%q of %d bytes\n", part, info.Size)
	// Output:
	// w1 lost the race: false
	// w2 lost the race: true
	// "w1\n" of 14 bytes
}
