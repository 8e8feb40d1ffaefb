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

// Not parallel: the suite looks at the heap.
func TestBucketConforms(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return openBucket(t, t.TempDir()) }, blobtest.Features{})
}

// The same where files must have names from the start.
func TestBucketConformsWithNamedFiles(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store {
		b := openBucket(t, t.TempDir())
		b.NameAllFiles()
		return b
	}, blobtest.Features{})
}
