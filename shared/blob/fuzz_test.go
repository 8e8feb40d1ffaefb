package blob_test

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"rollout/shared/blob"
)

// FuzzCheckKey checks that an accepted key stays within its bucket in every store.
func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{
		"prompts/日本 語.jsonl", "a/../b", "../a", "/a", "a//b", "a/.", "a\x00b", "a\\..\\b", "work/x/7/3-abc", ".",
		"\xff", strings.Repeat("a", 300),
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := blob.CheckKey(key)
		if err == nil &&
			(!filepath.IsLocal(key) || filepath.Clean(key) != key || !utf8.ValidString(key) ||
				strings.ContainsAny(key, "\x00\n\r")) {
			t.Errorf("CheckKey accepts %q", key)
		}
		if prefix := key + "/"; err == nil && blob.CheckPrefix(prefix) != nil {
			t.Errorf("CheckKey accepts %q, but CheckPrefix refuses %q", key, prefix)
		}
	})
}
