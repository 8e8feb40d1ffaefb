package memory_test

import (
	"testing"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/clock"
	"rollout/shared/memory"
)

func TestBucketConforms(t *testing.T) {
	t.Parallel()
	blobtest.Run(t,
		func(*testing.T) blob.Store { return memory.NewBucket(clock.System{}) },
		blobtest.Features{InMemory: true})
}
