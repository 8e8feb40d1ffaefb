package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Many workers answer one run. Its files are a laptop's, and no document is written more
// than once a second. Take 200 workers with -args -workers 200.
func TestManyWorkers(t *testing.T) {
	in := deploy(t, faults{}, "")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { in.tick(ctx) })
	for n := range *workers {
		all.Go(func() { work(ctx, in.Ports, in.Deployment, fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K%04d", n)) })
	}
	file := prompts(100 * *workers)
	start := time.Now()
	id := upload(t, in.Ports, bucket, file)
	in.wantLaptops(t, id, file)
	const window = 10 * time.Second
	document, n := in.firestore.Busiest(window)
	t.Logf("%d workers answered in %v; the busiest document is %s, written %d times within %v", *workers,
		time.Since(start).Round(time.Second), document, n, window)
	if n > 10 {
		t.Error("that is more than once a second")
	}
}
