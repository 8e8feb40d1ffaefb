package hub

import (
	"crypto/sha1" // the name that git gives to small files; see digest
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// digest is what the hub tells of a file's bytes: SHA-256 of a large one, and for others
// git's name of them, which is SHA-1 of a header and the bytes.
type digest struct{ sha256Hex, gitHex string }

func (d digest) hex() string {
	if d.sha256Hex != "" {
		return d.sha256Hex
	}
	return d.gitHex
}

// valid reports whether it has the form of a digest.
func (d digest) valid() bool {
	size := 2 * sha1.Size
	if d.sha256Hex != "" {
		size = 2 * sha256.Size
	}
	b, err := hex.DecodeString(d.hex())
	return err == nil && 2*len(b) == size && d.hex() == strings.ToLower(d.hex())
}

// hasher returns a hash for a file of the size, whose sum is the digest.
func (d digest) hasher(size int64) hash.Hash {
	if d.sha256Hex != "" {
		return sha256.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}
