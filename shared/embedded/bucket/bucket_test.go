package bucket_test

import (
	"testing"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/embedded/bucket"
)

func openBucket(t *testing.T, dir string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(dir, bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestBucketConforms is not parallel: the suite measures the heap.
func TestBucketConforms(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return openBucket(t, t.TempDir()) }, blobtest.Features{})
}

// TestBucketConformsWithoutUnnamedFiles covers file systems without O_TMPFILE.
func TestBucketConformsWithoutUnnamedFiles(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store {
		b := openBucket(t, t.TempDir())
		b.DisableUnnamedFiles()
		return b
	}, blobtest.Features{})
}
