package document_test

import (
	"context"
	"fmt"

	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/memory"
)

// A writer changes a document by compare-and-swap. Another writer that read the
// same revision gets a Conflict, and must read and decide again.
func Example() {
	ctx := context.Background()
	var docs document.Store = memory.NewDocuments() // or DynamoDB, Firestore, SQLite

	if _, err := docs.Create(ctx, "control/run", []byte(`"run"`)); err != nil {
		fmt.Println(err)
		return
	}
	mine, _ := docs.Get(ctx, "control/run")
	others, _ := docs.Get(ctx, "control/run")

	_, err := docs.Replace(ctx, "control/run", []byte(`"pause"`), mine.Revision)
	fmt.Println("first writer:", err)
	_, err = docs.Replace(ctx, "control/run", []byte(`"end"`), others.Revision)
	fmt.Println("second writer has a conflict:", fault.Is(err, fault.Conflict))

	now, _ := docs.Get(ctx, "control/run")
	fmt.Println(string(now.Value))
	// Output:
	// first writer: <nil>
	// second writer has a conflict: true
	// "pause"
}
