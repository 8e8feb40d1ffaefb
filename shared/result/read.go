package result

import (
	"context"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// ReadCheckpoint reads and verifies the checkpoint object of a shard with that
// many items.
func ReadCheckpoint(ctx context.Context, blobs blob.Store, c shard.Ref, items int) ([]Row, error) {
	b, err := input.ReadObject(ctx, blobs, c.Key, c.Length)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != c.Length || identity.Content(b).String() != c.Digest {
		return nil, fault.New(fault.Corrupt, "checkpoint %s does not have the digest that its shard names", c.Key)
	}
	return ParseCheckpoint(b, items)
}
