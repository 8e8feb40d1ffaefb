package embedded_test

import (
	"testing"

	"rollout/shared/embedded"
	"rollout/shared/snapshot/snapshottest"
)

func TestSnapshotsOnDisk(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, func(t *testing.T) snapshottest.Stores {
		state, err := embedded.OpenState(t.Context(), t.TempDir(), embedded.StateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := state.Close(); err != nil {
				t.Error(err)
			}
		})
		return snapshottest.Stores{Blobs: openBucket(t, t.TempDir()), Docs: state.Documents()}
	})
}
