package aws

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// spread is the number of partitions of the documents that are not listed.
// DynamoDB carries 1,000 writes a second in each, and splits those that get hot.
const spread = 64

// shards is the first part of the keys of shards. They have partitions of their
// own, so that a worker's role can let it write them and nothing else: IAM tells
// documents by their partition.
const shards = "shard"

// partitions says which partition of the table a document is in. What is
// listed stands together by the first part of its key: "run/01J…" is in
// "run/". Everything else is spread by a hash, shards in "shard-00" to
// "shard-3f" and others in "00" to "3f": it is found by its key alone.
type partitions struct {
	prefix string
	listed []string
	spread int
}

// of returns the partition of a key.
func (p partitions) of(key string) string {
	first, _, ok := strings.Cut(key, "/")
	if ok && slices.Contains(p.listed, first) {
		return p.prefix + first + "/"
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return p.hashed(ok && first == shards, int(hash.Sum64()%uint64(p.spread)))
}

// hashed has no slash, so it is never one of the listed.
func (p partitions) hashed(shard bool, n int) string {
	kind := ""
	if shard {
		kind = shards + "-"
	}
	return fmt.Sprintf("%s%s%02x", p.prefix, kind, n)
}

// with returns the partitions that may hold keys with the prefix.
func (p partitions) with(prefix string) (names []string) {
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

// ListedPrefixes are the first parts of keys that the product lists, or that a policy
// has to name: runs, those of them that are open, workers, their fleets, and what
// trainings keep. It is for the life of a table.
func ListedPrefixes() []string {
	return []string{"run", "open", "beat", "worker", "fleet", "snapshot", "content"}
}
