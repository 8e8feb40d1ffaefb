package bucket

import (
	"context"

	"rollout/shared/blob"
)

// DisableUnnamedFiles makes the bucket write all new objects under temporary names, as
// on file systems without unnamed files.
func (b *Bucket) DisableUnnamedFiles() { b.unnamed = false }

// PutFileForTest is PutFile on an open bucket.
func (b *Bucket) PutFileForTest(ctx context.Context, srcPath, key string) error {
	_, err := b.putFile(ctx, srcPath, key, blob.PutOptions{})
	return err
}
