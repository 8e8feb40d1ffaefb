package snapshot_test

import (
	"testing"

	"rollout/shared/clock"
	"rollout/shared/memory"
	"rollout/shared/snapshot/snapshottest"
)

func TestSnapshotsInMemory(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, func(*testing.T) snapshottest.Stores {
		return snapshottest.Stores{Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments()}
	})
}
