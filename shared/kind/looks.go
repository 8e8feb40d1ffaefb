package kind

import (
	"context"
	"iter"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/record"
)

// Looks says how the runs of a kind are looked at that prune variants. Each item of such a run is a
// shard of its own: see Kind.ShardOf.
type Looks struct {
	// Places returns the places of the looks at a run of the config with so many shards: look k,
	// from 1 on, reads the shards before place k−1 of the list, and takes effect at place k. It is
	// nil for a run that is not looked at.
	Places func(c config.Run, shards int) []int
	// Decide decides a look. It depends on its argument alone, and repeating it changes nothing.
	Decide func(context.Context, Look) (record.Look, error)
}

// Look is a look that is due at a run.
type Look struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Number   int // from 1 on
	Places   []int
	Shards   int // of the run
	// Items yields the items of the shards between the place of the look before and that of this
	// one, in their order, without their lines. Those that were not sent, because their variant
	// is pruned, are left out. It ends with an error that Decide must return.
	Items iter.Seq2[Item, error]
}

// PlacesOf returns the places of the looks at a run with so many shards: see Looks.
func (k Kind) PlacesOf(m record.Manifest, shards int) []int {
	if !k.Prunes(m) {
		return nil
	}
	return k.Looks.Places(m.Config, shards)
}

// Prunes reports whether a run is looked at, if it has enough shards.
func (k Kind) Prunes(m record.Manifest) bool { return k.Looks != nil && m.Prunes() }
