package gcp

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"rollout/shared/fault"
)

// spread is the number of ranges of names of the documents that are not listed.
// Firestore splits ranges that many requests use, and takes minutes to do so:
// documents with neighbouring names would share a range at first.
const spread = 64

// names maps the keys of documents to their names in a collection.
//
//	run/01J.x        ──▶ lrun."01J.!x          listed: neighbours stay neighbours
//	shard/3f-01J-7   ──▶ h0cshard."3f-01J-7    hashed: spread over h00… to h3f…
//
// The letter keeps names apart from those that Firestore reserves ("." and ".."
// and "__x__"). Escapes replace "/", which no name may have, and ".", which marks
// them. Both keep their place in the order of the characters of keys, and the
// escape of a prefix is a prefix of the escape. So the keys with a prefix that are
// in one range of names are a range of names, in the order of the keys.
type names struct {
	listed []string // first parts of the keys that are listed
	spread int
}

var (
	escape   = strings.NewReplacer(".", ".!", "/", `."`)
	unescape = strings.NewReplacer(".!", ".", `."`, "/")
)

// listedName begins the names of documents that are listed.
const listedName = "l"

// hashed returns the beginning of the names of the nth range of hashed documents.
func hashed(n int) string { return fmt.Sprintf("h%02x", n) }

// of returns the name of the document with a key.
func (m names) of(key string) string {
	first, _, ok := strings.Cut(key, "/")
	if ok && slices.Contains(m.listed, first) {
		return listedName + escape.Replace(key)
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return hashed(int(hash.Sum64()%uint64(m.spread))) + escape.Replace(key)
}

// key returns the key of the document with a name. A name that is not of the
// driver's making is Corrupt.
func (m names) key(name string) (string, error) {
	for _, begin := range []int{len(listedName), len(hashed(0))} {
		if len(name) > begin {
			if key := unescape.Replace(name[begin:]); m.of(key) == name {
				return key, nil
			}
		}
	}
	return "", fault.New(fault.Corrupt, "the document's name %.80q is not one that rollout writes", name)
}

// ranges returns the beginnings of the names of the documents that may have keys
// with the prefix. Each is a range of names.
func (m names) ranges(prefix string) (begins []string) {
	some := false
	for _, first := range m.listed {
		if strings.HasPrefix(prefix, first+"/") {
			return []string{listedName}
		}
		some = some || strings.HasPrefix(first+"/", prefix)
	}
	if some {
		begins = append(begins, listedName)
	}
	for n := range m.spread {
		begins = append(begins, hashed(n))
	}
	return begins
}

// ListedDocuments returns the first parts of the keys that the product lists: runs,
// open and ended runs, the index by name, heartbeats, the content of trainings, what is to be
// delivered, and the files and uploads of the batch API, with the order in which its batches were
// created. The list must not change during the life of a database, except for kinds of
// documents that it never had.
func ListedDocuments() []string {
	return []string{"run", "open", "ended", "named", "beat", "snapshot", "content", "outbox", "created", "file",
		"upload"}
}
