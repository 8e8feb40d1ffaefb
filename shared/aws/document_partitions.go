package aws

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// spread is the number of partitions of the documents that are not listed.
// DynamoDB accepts 1,000 writes a second in each, and splits hot ones.
const spread = 64

// shards is the first part of the keys of shards. Shards have partitions of their
// own, so that the role of a worker can allow writes to them and to nothing else:
// IAM distinguishes documents by their partition.
const shards = "shard"

// partitions maps the key of a document to its partition of the table. Documents
// of a listed kind share the partition named after the first part of their key:
// "run/01J…" is in "run/". All other documents are spread by a hash of their key:
// shards over "shard-00" to "shard-3f", the rest over "00" to "3f".
type partitions struct {
	prefix string
	listed []string
	spread int
}

// partitionOf returns the partition of a key.
func (p partitions) partitionOf(key string) string {
	first, _, ok := strings.Cut(key, "/")
	if ok && slices.Contains(p.listed, first) {
		return p.prefix + first + "/"
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return p.hashed(ok && first == shards, int(hash.Sum64()%uint64(p.spread)))
}

// hashed returns the name of the nth partition of the hashed documents. The name
// has no slash, so it never equals that of a listed kind.
func (p partitions) hashed(shard bool, n int) string {
	kind := ""
	if shard {
		kind = shards + "-"
	}
	return fmt.Sprintf("%s%s%02x", p.prefix, kind, n)
}

// partitionsFor returns the partitions that may hold keys with the prefix.
func (p partitions) partitionsFor(prefix string) (names []string) {
	for _, first := range p.listed {
		if strings.HasPrefix(prefix, first+"/") {
			return []string{p.prefix + first + "/"}
		}
		if strings.HasPrefix(first+"/", prefix) {
			names = append(names, p.prefix+first+"/")
		}
	}
	onlyShards := strings.HasPrefix(prefix, shards+"/")
	for n := range p.spread {
		if onlyShards || strings.HasPrefix(shards+"/", prefix) {
			names = append(names, p.hashed(true, n))
		}
		if !onlyShards {
			names = append(names, p.hashed(false, n))
		}
	}
	return names
}

// ListedPrefixes returns the first parts of keys that the product lists or that an IAM policy
// names: runs, open, ended and expired runs, the index by name, heartbeats, workers, fleets, the
// limits of pools, the installation's id, the scan for uploads, the snapshots and content of
// trainings, what people were told, what is to be delivered, and the batches, files and uploads
// of the batch API, with the batches' order of creation. The list must not change during the life of a table,
// except for kinds of documents that the table never had.
func ListedPrefixes() []string {
	return []string{"run", "open", "ended", "found", "named", "beat", "worker", "fleet", "limit", "installation",
		"uploads", "upload", "snapshot", "content", "notify", "outbox", "batch", "created", "file"}
}
