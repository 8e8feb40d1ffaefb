package sqlite_test

import (
	"errors"
	"testing"

	"rollout/shared/embedded/bucket"
	"rollout/shared/embedded/sqlite"
	"rollout/shared/snapshot/snapshottest"
)

func TestSnapshotsOnDisk(t *testing.T) {
	t.Parallel()
	snapshottest.Run(t, func(t *testing.T) snapshottest.Stores {
		state, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		blobs, err := bucket.Open(t.TempDir(), bucket.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(state.Close(), blobs.Close()); err != nil {
				t.Error(err)
			}
		})
		return snapshottest.Stores{Blobs: blobs, Docs: state.Documents()}
	})
}
