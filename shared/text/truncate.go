// Package text shortens texts from elsewhere, such as errors of servers and
// lines of users, to what a document or a message has room for, fills templates, and
// quotes words for a shell.
//
// It imports the standard library alone, so that every other package may use it.
package text

import "unicode/utf8"

// Truncate returns s if it has at most limit bytes. Otherwise it returns the
// longest prefix of at most limit bytes that ends between two characters,
// followed by tail, such as "…" or "". The tail does not count toward the limit.
// Invalid UTF-8 in s stays as it is: callers that need valid text replace it
// first.
func Truncate(s string, limit int, tail string) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	// A character has at most UTFMax bytes: in invalid text the search ends there.
	for end > max(0, limit-utf8.UTFMax) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + tail
}
