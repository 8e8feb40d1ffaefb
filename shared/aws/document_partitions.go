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

// partitions says which partition of the table a document is in. What is
// listed stands together by the first part of its key: "run/01J…" is in
// "run/". Everything else is spread by a hash: it is found by its key alone.
type partitions struct {
	prefix string
	listed []string
	spread int
}

// of returns the partition of a key.
func (p partitions) of(key string) string {
	if first, _, ok := strings.Cut(key, "/"); ok && slices.Contains(p.listed, first) {
		return p.prefix + first + "/"
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return p.hashed(int(hash.Sum64() % uint64(p.spread)))
}

// hashed has no slash, so it is never one of the listed.
func (p partitions) hashed(n int) string { return fmt.Sprintf("%s%02x", p.prefix, n) }

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
	for n := range p.spread {
		names = append(names, p.hashed(n))
	}
	return names
}

// Listed are the first parts of keys that the product lists: runs, those of
// them that are open, and workers.
func Listed() []string { return []string{"run", "open", "beat", "worker"} }
