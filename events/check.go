package events

import (
	"fmt"
	"strings"
	"unicode"
)

// Bounds of payload fields, in bytes.
const (
	maxKey     = 1024 // of an object's key: the limit of S3 and Cloud Storage
	maxKind    = 130  // of a machine: two names
	maxName    = 128  // of a worker, a pool, a class, a phase
	maxReason  = 512
	maxClasses = 64
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// runID checks the shape of a run id, which becomes part of keys: 26
// characters of Crockford base32, the first at most 7.
func runID(s string) error {
	ok := len(s) == 26 && s[0] <= '7'
	for _, r := range s {
		ok = ok && strings.ContainsRune(crockford, r)
	}
	if !ok {
		return fmt.Errorf("run %.64q is not a run id", s)
	}
	return nil
}

// count checks a number that must not be negative.
func count[N int | int64](field string, n N) error {
	if n < 0 {
		return fmt.Errorf("%s %d is negative", field, n)
	}
	return nil
}

// name checks a name that may become part of a key.
func name(field, s string) error {
	if !printable(s, 1, maxName) || strings.Contains(s, "/") {
		return fmt.Errorf("%s %.64q is not a name of 1 to %d printable characters", field, s, maxName)
	}
	return nil
}

// text checks a text for users; it may be empty.
func text(field, s string) error {
	if len(s) > maxReason {
		return fmt.Errorf("%s has %d bytes, more than %d", field, len(s), maxReason)
	}
	return nil
}

// key checks an object's key, version or bucket.
func key(field, s string) error {
	if s == "" || len(s) > maxKey || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%s %.64q is not 1 to %d bytes without control characters", field, s, maxKey)
	}
	return nil
}

// digest checks a blake3 hash in hex; it may be empty.
func digest(s string) error {
	ok := s == "" || len(s) == 64
	for _, r := range s {
		ok = ok && (r >= '0' && r <= '9' || r >= 'a' && r <= 'f')
	}
	if !ok {
		return fmt.Errorf("digest %.64q is not 64 hex digits", s)
	}
	return nil
}

// printable reports whether s has low to high bytes, all of them printable ASCII
// without blanks.
func printable(s string, low, high int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= low && len(s) <= high
}
